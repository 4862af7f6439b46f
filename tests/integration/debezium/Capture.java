import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.Header;
import io.debezium.engine.format.Json;
import java.io.PrintStream;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

/**
 * Runs one engine for each file of properties that is named, and writes what it is told as lines of
 * JSON into the file beside it: topic, key, value, headers. Ends when its input is closed.
 */
public final class Capture {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            Path given = Path.of(name);
            Properties properties = new Properties();
            try (Reader reader = Files.newBufferedReader(given)) {
                properties.load(reader);
            }
            PrintStream out = new PrintStream(
                Files.newOutputStream(Path.of(name + ".told")), true, "UTF-8");
            DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine
                .create(Json.class, Json.class, Json.class)
                .using(properties)
                .using((success, message, error) -> {
                    System.err.println(name + " ended: " + message);
                    if (error != null) {
                        error.printStackTrace();
                    }
                    if (!success) {
                        Runtime.getRuntime().halt(1);
                    }
                })
                .notifying(event -> out.println(line(event)))
                .build();
            Thread thread = new Thread(engine, name);
            thread.setDaemon(true);
            thread.start();
        }
        while (System.in.read() >= 0) {
            // nothing is said here: the end of the input is the sign
        }
        Runtime.getRuntime().halt(0);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static String line(ChangeEvent<String, String> event) {
        List<String> headers = new ArrayList<>();
        for (Header header : (List<Header>) (List) event.headers()) {
            headers.add("[\"" + header.getKey() + "\"," + header.getValue() + "]");
        }
        return "{\"topic\":\"" + event.destination() + "\",\"key\":" + event.key()
            + ",\"value\":" + event.value() + ",\"headers\":[" + String.join(",", headers) + "]}";
    }
}
