import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Debezium's engine, told what to do line by line: a JSON list ["follow", port, slot, events] is
 * answered with an object when so many events have come. A slot that was followed before goes on.
 */
public final class Follow {
    public static void main(String[] arguments) throws Exception {
        System.out.println("{\"ready\":true}");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = input.readLine()) != null) {
            String[] words = line.replaceAll("[\\[\\]\" ]", "").split(",");
            follow(arguments[0], words[1], words[2], Long.parseLong(words[3]));
            System.out.println("{}");
        }
        Runtime.getRuntime().halt(0);
    }

    private static void follow(String folder, String port, String slot, long events)
            throws Exception {
        AtomicLong left = new AtomicLong(events);
        CountDownLatch done = new CountDownLatch(1);
        CompletableFuture<String> ended = new CompletableFuture<>();
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine
            .create(Json.class)
            .using(properties(folder, port, slot))
            .using((success, message, error) -> {
                ended.complete(success ? "" : message + " " + error);
                done.countDown();
            })
            .notifying((batch, committer) -> {
                for (ChangeEvent<String, String> event : batch) {
                    committer.markProcessed(event);
                }
                committer.markBatchFinished();
                if (left.addAndGet(-batch.size()) <= 0) {
                    done.countDown();
                }
            })
            .build();
        Thread thread = new Thread(engine, slot);
        thread.start();
        done.await();
        if (left.get() > 0) {
            throw new IllegalStateException(ended.get());
        }
        engine.close();
        thread.join();
    }

    private static Properties properties(String folder, String port, String slot) {
        Properties given = new Properties();
        given.setProperty("name", slot);
        given.setProperty("topic.prefix", "bench");
        given.setProperty("connector.class",
            "io.debezium.connector.postgresql.PostgresConnector");
        given.setProperty("plugin.name", "pgoutput");
        given.setProperty("publication.autocreate.mode", "filtered");
        given.setProperty("publication.name", slot);
        given.setProperty("slot.name", slot);
        given.setProperty("table.include.list", "public.orders");
        given.setProperty("database.hostname", "127.0.0.1");
        given.setProperty("database.port", port);
        given.setProperty("database.user", "postgres");
        given.setProperty("database.password", "postgres");
        given.setProperty("database.dbname", "postgres");
        given.setProperty("offset.storage",
            "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        given.setProperty("offset.storage.file.filename", folder + "/" + slot + ".offsets");
        given.setProperty("offset.flush.interval.ms", "1000");
        given.setProperty("key.converter.schemas.enable", "false");
        given.setProperty("value.converter.schemas.enable", "false");
        // What its documentation suggests for throughput.
        given.setProperty("max.batch.size", "8192");
        given.setProperty("max.queue.size", "32768");
        given.setProperty("poll.interval.ms", "20");
        return given;
    }
}
