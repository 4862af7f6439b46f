import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A transactional producer that does what each line of its input says and answers each line. */
public final class Transactions {
    private final KafkaProducer<byte[], byte[]> producer;

    private Transactions(String bootstrap, String transactionalId, String timeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", timeoutMs);
        settings.put("max.block.ms", "30000");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        producer = new KafkaProducer<>(settings);
    }

    public static void main(String[] arguments) throws Exception {
        Transactions client = new Transactions(arguments[0], arguments[1], arguments[2]);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                client.obey(line.split(" "));
                answer = "ok";
            } catch (Exception error) {
                Throwable reason = error.getCause() == null ? error : error.getCause();
                answer = reason.getClass().getSimpleName() + ": " + reason.getMessage();
            }
            System.out.println(answer.replace('\n', ' '));
            System.out.flush();
        }
        client.producer.close(Duration.ofSeconds(1));
    }

    private void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> {
                byte[] value = words[3].getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(words[1], Integer.parseInt(words[2]), null, value))
                        .get();
            }
            case "offset" -> producer.sendOffsetsToTransaction(
                    Map.of(
                            new TopicPartition(words[2], 0),
                            new OffsetAndMetadata(Long.parseLong(words[3]))),
                    new ConsumerGroupMetadata(words[1]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }
}
