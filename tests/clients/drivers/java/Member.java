import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group that prints what it is given, gives up and reads, until its input ends.
 *
 * <p>Arguments: bootstrap, group, protocol (consumer or classic), topic or ^expression, and perhaps
 * an instance id.
 */
public final class Member implements ConsumerRebalanceListener {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("group.protocol", arguments[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("auto.commit.interval.ms", "100");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        if (arguments[2].equals("classic")) {
            settings.put("heartbeat.interval.ms", "200");
            settings.put("session.timeout.ms", "6000");
        }
        if (arguments.length > 4) {
            settings.put("group.instance.id", arguments[4]);
        }
        AtomicBoolean stopped = new AtomicBoolean();
        Thread watch = new Thread(() -> waitForEnd(stopped));
        watch.setDaemon(true);
        watch.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            if (arguments[3].startsWith("^")) {
                consumer.subscribe(new SubscriptionPattern(arguments[3]), new Member());
            } else {
                consumer.subscribe(List.of(arguments[3]), new Member());
            }
            while (!stopped.get()) {
                for (ConsumerRecord<byte[], byte[]> read : consumer.poll(Duration.ofMillis(50))) {
                    say("read " + new String(read.value(), StandardCharsets.UTF_8));
                }
            }
        } catch (RuntimeException error) {
            say("failed " + error.getClass().getSimpleName() + ": " + error.getMessage());
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        partitions.forEach(partition -> say("given " + partition));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        partitions.forEach(partition -> say("gone " + partition));
    }

    private static void waitForEnd(AtomicBoolean stopped) {
        try {
            while (System.in.read() >= 0) {
                // Whatever is written is of no interest, only that it ends.
            }
        } catch (IOException error) {
            say("failed " + error.getMessage());
        }
        stopped.set(true);
    }

    private static synchronized void say(String line) {
        System.out.println(line.replace('\n', ' '));
        System.out.flush();
    }
}
