// What a user of amqplib does: confirms, a topic exchange, prefetch, nacks, dead letters, answers.
"use strict";

const assert = require("node:assert");
const amqp = require("amqplib");

async function main(url) {
  const connection = await amqp.connect(url);
  const channel = await connection.createConfirmChannel();
  await channel.assertExchange("js", "topic", { durable: true });
  await channel.assertExchange("js-dead", "fanout", { durable: true });
  await channel.assertQueue("js-buried", { durable: true });
  await channel.bindQueue("js-buried", "js-dead", "");
  const { queue } = await channel.assertQueue("js-work", {
    durable: true,
    deadLetterExchange: "js-dead",
    maxPriority: 5,
  });
  await channel.bindQueue(queue, "js", "a.*");

  for (let number = 0; number < 50; number += 1) {
    channel.publish("js", "a.b", Buffer.from(String(number)), {
      persistent: true,
      contentType: "text/plain",
      headers: { number, text: "ä", list: [1, "b"], nested: { flag: true } },
      messageId: `m-${number}`,
    });
  }
  await channel.waitForConfirms();

  const returned = new Promise((resolve) => channel.once("return", resolve));
  channel.publish("js", "nobody", Buffer.from("lost"), { mandatory: true });
  assert.strictEqual((await returned).fields.replyText, "NO_ROUTE");

  await channel.prefetch(10);
  const seen = [];
  await new Promise((resolve, reject) => {
    channel.consume(queue, (message) => {
      try {
        const number = Number(message.content.toString());
        assert.strictEqual(message.properties.messageId, `m-${number}`);
        assert.deepStrictEqual(message.properties.headers.list, [1, "b"]);
        if (number === 7 && !message.fields.redelivered) {
          channel.nack(message, false, true);
          return;
        }
        if (number === 9) {
          channel.reject(message, false);
        } else {
          channel.ack(message);
        }
        seen.push(number);
        if (seen.length === 50) resolve();
      } catch (error) {
        reject(error);
      }
    });
  });
  assert.deepStrictEqual([...seen].sort((a, b) => a - b), [...Array(50).keys()]);

  let dead = false;
  while (!dead) dead = await channel.get("js-buried", { noAck: true });
  assert.strictEqual(dead.content.toString(), "9");
  assert.strictEqual(dead.properties.headers["x-death"][0].reason, "rejected");
  assert.strictEqual(dead.properties.headers["x-death"][0].queue, queue);

  const asking = await connection.createChannel();
  const answer = new Promise((resolve) => {
    asking.consume("amq.rabbitmq.reply-to", resolve, { noAck: true });
  });
  await asking.assertQueue("js-requests", { exclusive: true });
  await asking.consume("js-requests", (message) => {
    asking.sendToQueue(message.properties.replyTo, Buffer.from("4"));
    asking.ack(message);
  });
  asking.sendToQueue("js-requests", Buffer.from("2 + 2"), { replyTo: "amq.rabbitmq.reply-to" });
  assert.strictEqual((await answer).content.toString(), "4");

  const refused = await connection.createChannel();
  refused.on("error", () => {});
  await assert.rejects(refused.checkQueue("js-absent"), /404/);
  await connection.close();
  console.log("all is well");
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
