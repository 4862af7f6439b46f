import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Runs errands with the Java client. The forms are described in errand.py and records.py. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Base64.Encoder TEXT = Base64.getEncoder();
    private static final Base64.Decoder BYTES = Base64.getDecoder();

    private final JsonNode errand;
    private final String topic;

    private Driver(JsonNode errand) {
        this.errand = errand;
        this.topic = errand.get("topic").asText();
    }

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver(JSON.readTree(Files.readAllBytes(Path.of(arguments[0]))));
        switch (driver.errand.get("op").asText()) {
            case "create" -> driver.create();
            case "produce" -> driver.produce();
            case "consume" -> driver.consume();
            case "read" -> driver.read();
            case "member" -> driver.member();
            default -> throw new IllegalArgumentException("unknown operation");
        }
    }

    private void create() throws Exception {
        Map<String, String> configs = new HashMap<>();
        errand.get("configs").properties().forEach(e -> configs.put(e.getKey(), e.getValue().asText()));
        NewTopic wanted = new NewTopic(topic, errand.get("partitions").asInt(), (short) 1);
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(wanted.configs(configs))).all().get();
        }
    }

    private void produce() throws Exception {
        Properties settings = settings();
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        if (!errand.get("codec").asText().isEmpty()) {
            settings.put("compression.type", errand.get("codec").asText());
        }
        int largest = errand.get("max_record_bytes").asInt();
        if (largest > 0) {
            settings.put("max.request.size", Integer.toString(largest + (1 << 20)));
        }
        List<Future<?>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
                BufferedReader input = Files.newBufferedReader(Path.of(errand.get("input").asText()))) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                sent.add(producer.send(decode(line)));
            }
            producer.flush();
        }
        for (Future<?> one : sent) {
            one.get();
        }
    }

    private void consume() throws IOException {
        int left = errand.get("count").asInt();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(groupSettings());
                PrintWriter output = output()) {
            consumer.subscribe(List.of(topic));
            while (left > 0) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofSeconds(1));
                Map<TopicPartition, Long> unread = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    if (left > 0) {
                        output.println(encode(record));
                        left -= 1;
                    } else {
                        unread.putIfAbsent(
                                new TopicPartition(record.topic(), record.partition()), record.offset());
                    }
                }
                // What was polled but not taken is left for the next member of the group.
                unread.forEach(consumer::seek);
            }
            consumer.commitSync();
        }
    }

    private void read() throws IOException {
        int left = errand.get("count").asInt();
        TopicPartition partition = new TopicPartition(topic, errand.get("partition").asInt());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumerSettings());
                PrintWriter output = output()) {
            consumer.assign(List.of(partition));
            long offset = errand.get("offset").asLong();
            if (!errand.get("timestamp_ms").isNull()) {
                Map<TopicPartition, Long> wanted = Map.of(partition, errand.get("timestamp_ms").asLong());
                offset = consumer.offsetsForTimes(wanted).get(partition).offset();
            }
            consumer.seek(partition, offset);
            while (left > 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (left > 0) {
                        output.println(encode(record));
                        left -= 1;
                    }
                }
            }
        }
    }

    private void member() throws IOException {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(groupSettings());
                PrintWriter output = output()) {
            consumer.subscribe(List.of(topic));
            while (true) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    output.println(encode(record));
                }
                output.flush();
            }
        }
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", errand.get("bootstrap").asText());
        return settings;
    }

    private Properties consumerSettings() {
        Properties settings = settings();
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("check.crcs", "true");
        return settings;
    }

    private Properties groupSettings() {
        Properties settings = consumerSettings();
        settings.put("group.id", errand.get("group").asText());
        settings.put("auto.offset.reset", "earliest");
        int session = errand.get("session_timeout_ms").asInt();
        if (session > 0) {
            settings.put("session.timeout.ms", Integer.toString(session));
        }
        return settings;
    }

    private PrintWriter output() throws IOException {
        return new PrintWriter(Files.newBufferedWriter(Path.of(errand.get("output").asText())));
    }

    private ProducerRecord<byte[], byte[]> decode(String line) throws IOException {
        JsonNode fields = JSON.readTree(line);
        Integer partition = fields.get(0).isNull() ? null : fields.get(0).asInt();
        Long timestamp = fields.get(2).isNull() ? null : fields.get(2).asLong();
        ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(topic, partition, timestamp, bytes(fields.get(3)), bytes(fields.get(4)));
        for (JsonNode header : fields.get(5)) {
            record.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        return record;
    }

    private static String encode(ConsumerRecord<byte[], byte[]> record) {
        ArrayNode fields = JSON.createArrayNode();
        fields.add(record.partition()).add(record.offset()).add(record.timestamp());
        fields.add(text(record.key())).add(text(record.value()));
        ArrayNode headers = fields.addArray();
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return fields.toString();
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : BYTES.decode(text.asText());
    }

    private static String text(byte[] content) {
        return content == null ? null : new String(TEXT.encode(content), StandardCharsets.US_ASCII);
    }
}
