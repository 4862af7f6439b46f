import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's own command line tools one after the other, without a start of Java for each.
 *
 * <p>A line names the main class and its arguments, with tabs between. The answer is a line: the
 * exit code and what was printed, in base 64.
 */
public final class Tools {
    private static final class Ended extends RuntimeException {}

    /** Some tools end inside of a block that takes every error for a failure: the first counts. */
    private static Integer ended;

    public static void main(String[] arguments) throws IOException {
        Exit.setExitProcedure((code, message) -> {
            ended = ended == null ? code : ended;
            throw new Ended();
        });
        PrintStream answers = System.out;
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream page = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(page);
            System.setErr(page);
            int code = run(line.split("\t"), page);
            answers.println(code + " " + Base64.getEncoder().encodeToString(printed.toByteArray()));
            answers.flush();
        }
    }

    private static int run(String[] words, PrintStream page) {
        ended = null;
        try {
            String[] options = Arrays.copyOfRange(words, 1, words.length);
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) options);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                error.getCause().printStackTrace(page);
                return 1;
            }
        } catch (ReflectiveOperationException error) {
            error.printStackTrace(page);
            return 1;
        }
        return ended == null ? 0 : ended;
    }
}
