import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group that prints what it is given and what became of its acknowledgements,
 * until its input ends.
 *
 * <p>Arguments: bootstrap, group, topic, implicit or explicit, and settings as name=value. An
 * explicit member does with a record what its value says: "release:n" gives it back the first n
 * times, "reject" refuses it, "renew:n" keeps it for n turns, "hold" keeps it for good, anything
 * else is accepted.
 */
public final class ShareMember {
    private static final ConcurrentLinkedQueue<ConsumerRecord<byte[], byte[]>> HELD =
            new ConcurrentLinkedQueue<>();

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("share.acknowledgement.mode", arguments[3]);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        for (int index = 4; index < arguments.length; index++) {
            String[] pair = arguments[index].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        boolean explicit = arguments[3].equals("explicit");
        AtomicBoolean stopped = new AtomicBoolean();
        Thread watch = new Thread(() -> waitForEnd(stopped));
        watch.setDaemon(true);
        watch.start();
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach(
                    (partition, acknowledged) -> acknowledged.forEach(offset -> say("acked "
                            + partition.partition() + " " + offset + " "
                            + (error == null ? "ok" : error.getClass().getSimpleName())))));
            consumer.subscribe(List.of(arguments[2].split(",")));
            while (!stopped.get()) {
                for (ConsumerRecord<byte[], byte[]> read : consumer.poll(Duration.ofMillis(200))) {
                    int count = read.deliveryCount().orElse((short) -1);
                    String value = new String(read.value(), StandardCharsets.UTF_8);
                    say("read " + read.partition() + " " + read.offset() + " " + count + " "
                            + value);
                    if (explicit) {
                        settle(consumer, read, value, count);
                    }
                }
            }
        } catch (RuntimeException error) {
            say("failed " + error.getClass().getSimpleName() + ": " + error.getMessage() + " "
                    + error.getCause());
        }
        say("closed");
    }

    private static void settle(
            KafkaShareConsumer<byte[], byte[]> consumer,
            ConsumerRecord<byte[], byte[]> read,
            String value,
            int count) {
        String[] words = value.split(":");
        if (words[0].equals("reject")) {
            consumer.acknowledge(read, AcknowledgeType.REJECT);
        } else if (words[0].equals("release") && count <= Integer.parseInt(words[1])) {
            consumer.acknowledge(read, AcknowledgeType.RELEASE);
        } else if (words[0].equals("renew") && seen(read) <= Integer.parseInt(words[1])) {
            consumer.acknowledge(read, AcknowledgeType.RENEW);
        } else if (words[0].equals("hold")) {
            pause();
            consumer.acknowledge(read, AcknowledgeType.RELEASE);
        } else {
            consumer.acknowledge(read);
        }
    }

    private static long seen(ConsumerRecord<byte[], byte[]> read) {
        HELD.add(read);
        return HELD.stream()
                .filter(each -> each.partition() == read.partition()
                        && each.offset() == read.offset())
                .count();
    }

    private static void pause() {
        try {
            Thread.sleep(600_000);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static void waitForEnd(AtomicBoolean stopped) {
        try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in))) {
            while (input.readLine() != null) {
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
