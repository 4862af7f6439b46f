// Every QoS both ways, retained messages, a kept session and properties of version 5; over TCP or
// WebSocket, whichever the address says.
const assert = require("node:assert");
const mqtt = require("mqtt");

const [address, prefix] = process.argv.slice(2);

function inbox(client) {
  const arrived = [];
  const waiting = [];
  client.on("message", (topic, payload, packet) => {
    const next = waiting.shift();
    if (next) next({ topic, payload, packet });
    else arrived.push({ topic, payload, packet });
  });
  return () =>
    arrived.length
      ? Promise.resolve(arrived.shift())
      : new Promise((resolve) => waiting.push(resolve));
}

async function everyday(protocolVersion) {
  const topic = `${prefix}/${protocolVersion}`;
  const client = await mqtt.connectAsync(address, { protocolVersion });
  const next = inbox(client);
  await client.subscribeAsync(`${topic}/#`, { qos: 2 });
  for (const qos of [0, 1, 2]) {
    await client.publishAsync(`${topic}/a`, Buffer.from([qos, 255]), { qos });
    const { payload, packet } = await next();
    assert.deepStrictEqual([...payload], [qos, 255]);
    assert.strictEqual(packet.qos, qos);
  }
  await client.publishAsync(`${topic}/kept`, "kept", { qos: 1, retain: true });
  await next();
  const late = await mqtt.connectAsync(address, { protocolVersion });
  const nextLate = inbox(late);
  await late.subscribeAsync(`${topic}/+`, { qos: 1 });
  const { payload, packet } = await nextLate();
  assert.strictEqual(payload.toString(), "kept");
  assert.strictEqual(packet.retain, true);
  await late.endAsync();
  await client.endAsync();
}

async function kept() {
  const options = {
    protocolVersion: 5,
    clientId: `${prefix}-kept`,
    clean: false,
    properties: { sessionExpiryInterval: 60 },
  };
  const topic = `${prefix}/session`;
  const first = await mqtt.connectAsync(address, options);
  await first.subscribeAsync(topic, { qos: 2 });
  await first.endAsync();
  const writer = await mqtt.connectAsync(address, { protocolVersion: 5 });
  const properties = { contentType: "text/plain", userProperties: { unit: "K" } };
  await writer.publishAsync(topic, "waited", { qos: 2, properties });
  await writer.endAsync();
  const again = mqtt.connect(address, options);
  const next = inbox(again);
  const { payload, packet } = await next();
  assert.strictEqual(payload.toString(), "waited");
  assert.strictEqual(packet.properties.contentType, "text/plain");
  assert.strictEqual(packet.properties.userProperties.unit, "K");
  await again.endAsync();
}

(async () => {
  await everyday(4);
  await everyday(5);
  await kept();
  console.log("all is well");
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
