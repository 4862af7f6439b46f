// Runs errands with KafkaJS. The errand and record forms are described in errand.py and records.py.
const fs = require('fs')
const readline = require('readline')
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs')

// KafkaJS ships gzip and takes the other codecs from packages, as its documentation says.
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => {
  const lz4 = require('lz4-napi')
  return {
    compress: (encoder) => lz4.compressFrame(encoder.buffer),
    decompress: (buffer) => lz4.decompressFrame(buffer),
  }
}
CompressionCodecs[CompressionTypes.ZSTD] = () => {
  const simple = new Promise((resolve) =>
    require('zstd-codec').ZstdCodec.run((zstd) => resolve(new zstd.Simple())))
  return {
    compress: async (encoder) => Buffer.from((await simple).compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from((await simple).decompress(buffer)),
  }
}

const CODECS = {
  '': CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
}
// KafkaJS makes one batch of one send() per partition; a send stays below the topic's limit.
const SEND_BYTES_MAX = 500000

const bytes = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const text = (content) => (content === null || content === undefined ? null : content.toString('base64'))

function encode(partition, message) {
  const headers = []
  for (const [name, value] of Object.entries(message.headers || {})) {
    for (const one of Array.isArray(value) ? value : [value]) headers.push([name, text(one)])
  }
  return JSON.stringify([partition, Number(message.offset), Number(message.timestamp),
    text(message.key), text(message.value), headers])
}

function decode(line) {
  const [partition, , timestamp, key, value, pairs] = JSON.parse(line)
  const headers = {}
  for (const [name, content] of pairs) {
    headers[name] = name in headers ? [].concat(headers[name], bytes(content)) : bytes(content)
  }
  const message = { key: bytes(key), value: bytes(value), headers }
  if (partition !== null) message.partition = partition
  if (timestamp !== null) message.timestamp = String(timestamp)
  return message
}

async function create(kafka, errand) {
  const admin = kafka.admin()
  await admin.connect()
  const configEntries = Object.entries(errand.configs).map(([name, value]) => ({ name, value }))
  await admin.createTopics({
    topics: [{ topic: errand.topic, numPartitions: errand.partitions, configEntries }],
  })
  await admin.disconnect()
}

async function produce(kafka, errand) {
  const producer = kafka.producer()
  await producer.connect()
  let messages = []
  let size = 0
  const send = async () => {
    if (messages.length === 0) return
    await producer.send({ topic: errand.topic, messages, compression: CODECS[errand.codec] })
    messages = []
    size = 0
  }
  for await (const line of readline.createInterface({ input: fs.createReadStream(errand.input) })) {
    const message = decode(line)
    if (size + line.length > SEND_BYTES_MAX) await send()
    messages.push(message)
    size += line.length
  }
  await send()
  await producer.disconnect()
}

function groupConsumer(kafka, errand) {
  const settings = { groupId: errand.group }
  if (errand.session_timeout_ms) settings.sessionTimeout = errand.session_timeout_ms
  return kafka.consumer(settings)
}

async function consume(kafka, errand) {
  const consumer = groupConsumer(kafka, errand)
  await consumer.connect()
  await consumer.subscribe({ topic: errand.topic, fromBeginning: true })
  const output = fs.createWriteStream(errand.output)
  let left = errand.count
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error))
    consumer.run({
      eachBatchAutoResolve: false,
      eachBatch: async ({
        batch, resolveOffset, heartbeat, commitOffsetsIfNecessary, uncommittedOffsets,
      }) => {
        for (const message of batch.messages) {
          if (left === 0) break
          output.write(encode(batch.partition, message) + '\n')
          resolveOffset(message.offset)
          left -= 1
        }
        await heartbeat()
        if (left === 0) {
          await commitOffsetsIfNecessary(uncommittedOffsets())
          resolve()
        }
      },
    }).catch(reject)
  })
  await consumer.disconnect()
  await new Promise((resolve) => output.end(resolve))
}

async function read(kafka, errand) {
  let offset = errand.offset
  if (errand.timestamp_ms !== null) {
    const admin = kafka.admin()
    await admin.connect()
    const found = await admin.fetchTopicOffsetsByTimestamp(errand.topic, errand.timestamp_ms)
    offset = Number(found.find((entry) => entry.partition === errand.partition).offset)
    await admin.disconnect()
  }
  // KafkaJS consumes as a group member only.
  const consumer = kafka.consumer({ groupId: `reader-${process.pid}-${Date.now()}` })
  await consumer.connect()
  await consumer.subscribe({ topic: errand.topic, fromBeginning: true })
  const lines = []
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error))
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        if (partition !== errand.partition || lines.length === errand.count) return
        // Messages fetched before the seek took effect are not what was asked for.
        if (lines.length === 0 && Number(message.offset) !== offset) return
        lines.push(encode(partition, message))
        if (lines.length === errand.count) resolve()
      },
    }).catch(reject)
    // A seek before the group has given out partitions races with the look-up of offsets.
    consumer.on(consumer.events.GROUP_JOIN, () =>
      consumer.seek({ topic: errand.topic, partition: errand.partition, offset: String(offset) }))
  })
  await consumer.disconnect()
  fs.writeFileSync(errand.output, lines.join('\n') + '\n')
}

async function member(kafka, errand) {
  const consumer = groupConsumer(kafka, errand)
  await consumer.connect()
  await consumer.subscribe({ topic: errand.topic, fromBeginning: true })
  const output = fs.openSync(errand.output, 'w')
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      fs.writeSync(output, encode(partition, message) + '\n')
    },
  })
  await new Promise(() => {})
}

const errand = JSON.parse(fs.readFileSync(process.argv[2]))
const kafka = new Kafka({
  clientId: 'kafkajs-driver', brokers: [errand.bootstrap], logLevel: logLevel.WARN,
})
const operations = { create, produce, consume, read, member }
operations[errand.op](kafka, errand).then(
  () => process.exit(0),
  (error) => { console.error(error); process.exit(1) },
)
