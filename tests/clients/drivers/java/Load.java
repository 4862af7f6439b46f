import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes to every partition of a topic in turn and reads all of it, until its input ends.
 *
 * <p>Prints "s number nanos" before a record is sent, "a number offset nanos" when it is
 * acknowledged, "e number nanos reason" when it is not, and "r partition offset value" for what is
 * read.
 */
public final class Load {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static volatile boolean over;

    private Load() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        int ratePerS = Integer.parseInt(arguments[3]);
        Thread reader = new Thread(() -> read(bootstrap, topic, partitions));
        Thread writer = new Thread(() -> write(bootstrap, topic, partitions, ratePerS));
        reader.start();
        writer.start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            // Whoever started this process says nothing but that it is over.
        }
        over = true;
        writer.join();
        reader.join();
        OUT.flush();
    }

    private static Properties settings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("retry.backoff.max.ms", "200");
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        return settings;
    }

    private static void write(String bootstrap, String topic, int partitions, int ratePerS) {
        Properties settings = settings(bootstrap);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("delivery.timeout.ms", "300000");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            long began = System.nanoTime();
            for (long number = 0; !over; number++) {
                long dueNs = began + number * 1_000_000_000L / ratePerS;
                while (System.nanoTime() < dueNs && !over) {
                    pause();
                }
                long sent = number;
                say("s " + sent + " " + System.nanoTime());
                String value = topic + "-java-" + sent;
                producer.send(
                        new ProducerRecord<>(topic, (int) (sent % partitions), value, value),
                        (place, error) -> {
                            long now = System.nanoTime();
                            if (error == null) {
                                say("a " + sent + " " + place.offset() + " " + now);
                            } else {
                                say("e " + sent + " " + now + " " + error);
                            }
                        });
            }
            producer.flush();
        }
    }

    private static void read(String bootstrap, String topic, int partitions) {
        Properties settings = settings(bootstrap);
        List<TopicPartition> places = new ArrayList<>();
        for (int number = 0; number < partitions; number++) {
            places.add(new TopicPartition(topic, number));
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(places);
            consumer.seekToBeginning(places);
            while (!over) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(100))) {
                    say("r " + one.partition() + " " + one.offset() + " " + one.value());
                }
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(2);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static void say(String line) {
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }
}
