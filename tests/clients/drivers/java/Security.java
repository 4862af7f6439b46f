import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.DescribeDelegationTokenOptions;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RenewDelegationTokenOptions;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Clients that log in: each line of the input is a command, each is answered by one line.
 *
 * <p>Words are separated by tabs. The first is the verb, the second the name of a client whose
 * settings were given by {@code client NAME key=value ...}. The answer begins with {@code ok} or is
 * the client's own exception.
 */
public final class Security {
    private final Map<String, Properties> clients = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        // What the client logs goes elsewhere: here is one answer to each line.
        PrintStream answers = System.out;
        System.setOut(System.err);
        Security driver = new Security();
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                String[] words = line.split("\t");
                answer = "ok " + driver.obey(words, Arrays.copyOfRange(words, 2, words.length));
            } catch (Exception error) {
                Throwable reason = error;
                while (reason.getCause() != null && isWrapper(reason)) {
                    reason = reason.getCause();
                }
                answer = reason.getClass().getSimpleName() + ": " + reason.getMessage();
            }
            answers.println(answer.replace('\n', ' '));
            answers.flush();
        }
    }

    /** Whether an exception only carries the one that says what happened. */
    private static boolean isWrapper(Throwable error) {
        return error instanceof ExecutionException || error.getClass() == KafkaException.class;
    }

    private String obey(String[] words, String[] rest) throws Exception {
        if (words[0].equals("property")) {
            System.setProperty(words[1], rest[0]);
            return "";
        }
        if (words[0].equals("client")) {
            Properties made = new Properties();
            for (String pair : rest) {
                int at = pair.indexOf('=');
                made.put(pair.substring(0, at), pair.substring(at + 1));
            }
            clients.put(words[1], made);
            return "";
        }
        Properties settings = new Properties();
        settings.putAll(clients.get(words[1]));
        switch (words[0]) {
            case "produce":
                return produce(settings, rest[0], rest[1]);
            case "consume":
                return consume(settings, rest[0], rest[1], rest[2]);
            case "steady":
                return steady(settings, rest[0], Long.parseLong(rest[1]), Long.parseLong(rest[2]));
            case "flood":
                return flood(settings, rest[0], Integer.parseInt(rest[1]), Long.parseLong(rest[2]));
            default:
                settings.put("default.api.timeout.ms", "8000");
                settings.put("request.timeout.ms", "8000");
                try (Admin admin = Admin.create(settings)) {
                    return administer(admin, words[0], rest);
                }
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(Properties settings) {
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.putIfAbsent("max.block.ms", "8000");
        return new KafkaProducer<>(settings);
    }

    private static String produce(Properties settings, String topic, String value)
            throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
            return "" + producer.send(new ProducerRecord<>(topic, bytes)).get().offset();
        }
    }

    /** Reads as a member of a group until the value comes. */
    private static String consume(Properties settings, String topic, String group, String value) {
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> read : consumer.poll(Duration.ofMillis(100))) {
                    if (new String(read.value(), StandardCharsets.UTF_8).equals(value)) {
                        consumer.commitSync();
                        return value;
                    }
                }
            }
            throw new IllegalStateException("the record did not come");
        }
    }

    /** Sends a record every so often over one connection; how many went well. */
    private static String steady(Properties settings, String topic, long forMs, long pauseMs)
            throws Exception {
        settings.put("retries", "0");
        int count = 0;
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            producer.send(new ProducerRecord<>(topic, new byte[1])).get();
            long deadline = System.nanoTime() + forMs * 1_000_000;
            for (; System.nanoTime() < deadline; count++) {
                producer.send(new ProducerRecord<>(topic, new byte[1])).get();
                Thread.sleep(pauseMs);
            }
        }
        return "" + count;
    }

    /** Sends as fast as it may; how long it took in ms, and the longest throttle that it saw. */
    private static String flood(Properties settings, String topic, int count, long size)
            throws Exception {
        settings.put("linger.ms", "0");
        settings.put("batch.size", "16384");
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            byte[] value = new byte[(int) size];
            producer.send(new ProducerRecord<>(topic, new byte[1])).get();
            long start = System.nanoTime();
            for (int sent = 0; sent < count; sent++) {
                producer.send(new ProducerRecord<>(topic, value)).get();
            }
            long tookMs = (System.nanoTime() - start) / 1_000_000;
            double throttled =
                    producer.metrics().entrySet().stream()
                            .filter(each -> each.getKey().name().equals("produce-throttle-time-max"))
                            .mapToDouble(each -> (double) each.getValue().metricValue())
                            .filter(each -> !Double.isNaN(each))
                            .max()
                            .orElse(0.0);
            return tookMs + " " + Math.round(throttled);
        }
    }

    private static String administer(Admin admin, String verb, String[] rest) throws Exception {
        switch (verb) {
            case "topics":
                return joined(admin.listTopics().names().get());
            case "create":
                admin.createTopics(List.of(new NewTopic(rest[0], 1, (short) 1))).all().get();
                return "";
            case "acl-create":
                admin.createAcls(List.of(binding(rest))).all().get();
                return "";
            case "acl-list":
                return joined(admin.describeAcls(filter(rest)).values().get());
            case "acl-delete":
                return joined(admin.deleteAcls(List.of(filter(rest))).all().get());
            default:
                return verb.startsWith("token-")
                        ? tokens(admin, verb, rest)
                        : credentialsAndQuotas(admin, verb, rest);
        }
    }

    private static String credentialsAndQuotas(Admin admin, String verb, String[] rest)
            throws Exception {
        switch (verb) {
            case "scram-set": {
                ScramMechanism mechanism = ScramMechanism.fromMechanismName(rest[1]);
                ScramCredentialInfo info =
                        new ScramCredentialInfo(mechanism, Integer.parseInt(rest[3]));
                admin.alterUserScramCredentials(
                                List.of(new UserScramCredentialUpsertion(rest[0], info, rest[2])))
                        .all()
                        .get();
                return "";
            }
            case "scram-delete":
                admin.alterUserScramCredentials(
                                List.of(
                                        new UserScramCredentialDeletion(
                                                rest[0], ScramMechanism.fromMechanismName(rest[1]))))
                        .all()
                        .get();
                return "";
            case "scram-list":
                return joined(
                        admin.describeUserScramCredentials(List.of(rest[0]))
                                .description(rest[0])
                                .get()
                                .credentialInfos());
            case "quota-set": {
                Double value = rest[1].equals("none") ? null : Double.valueOf(rest[1]);
                ClientQuotaAlteration change =
                        new ClientQuotaAlteration(
                                entity(rest[2]),
                                List.of(new ClientQuotaAlteration.Op(rest[0], value)));
                admin.alterClientQuotas(List.of(change)).all().get();
                return "";
            }
            case "quota-list": {
                return admin
                        .describeClientQuotas(ClientQuotaFilter.all())
                        .entities()
                        .get()
                        .entrySet()
                        .stream()
                        .map(each -> each.getKey().entries() + "" + each.getValue())
                        .sorted()
                        .collect(Collectors.joining(" "));
            }
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    private static String tokens(Admin admin, String verb, String[] rest) throws Exception {
        switch (verb) {
            case "token-create": {
                CreateDelegationTokenOptions options = new CreateDelegationTokenOptions();
                if (rest.length > 1) {
                    options.owner(new KafkaPrincipal("User", rest[1]));
                }
                if (rest.length > 2) {
                    options.renewers(List.of(new KafkaPrincipal("User", rest[2])));
                }
                options.maxLifetimeMs(Long.parseLong(rest[0]));
                DelegationToken made = admin.createDelegationToken(options).delegationToken().get();
                return made.tokenInfo().tokenId() + " " + made.hmacAsBase64String();
            }
            case "token-list": {
                DescribeDelegationTokenOptions options = new DescribeDelegationTokenOptions();
                return admin.describeDelegationToken(options).delegationTokens().get().stream()
                        .map(each -> each.tokenInfo().tokenId())
                        .collect(Collectors.joining(" "));
            }
            case "token-renew": {
                RenewDelegationTokenOptions options = new RenewDelegationTokenOptions();
                options.renewTimePeriodMs(Long.parseLong(rest[1]));
                byte[] hmac = Base64.getDecoder().decode(rest[0]);
                return "" + admin.renewDelegationToken(hmac, options).expiryTimestamp().get();
            }
            case "token-expire": {
                ExpireDelegationTokenOptions options = new ExpireDelegationTokenOptions();
                options.expiryTimePeriodMs(Long.parseLong(rest[1]));
                byte[] hmac = Base64.getDecoder().decode(rest[0]);
                return "" + admin.expireDelegationToken(hmac, options).expiryTimestamp().get();
            }
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    /** Type, pattern, name, principal, host, operation, permission. */
    private static AclBinding binding(String[] words) {
        ResourcePattern pattern =
                new ResourcePattern(
                        ResourceType.valueOf(words[0]), words[2], PatternType.valueOf(words[1]));
        AccessControlEntry entry =
                new AccessControlEntry(
                        words[3],
                        words[4],
                        AclOperation.valueOf(words[5]),
                        AclPermissionType.valueOf(words[6]));
        return new AclBinding(pattern, entry);
    }

    /** Type, pattern, name or -, principal or -. */
    private static AclBindingFilter filter(String[] words) {
        return new AclBindingFilter(
                new ResourcePatternFilter(
                        ResourceType.valueOf(words[0]),
                        words[2].equals("-") ? null : words[2],
                        PatternType.valueOf(words[1])),
                new AccessControlEntryFilter(
                        words[3].equals("-") ? null : words[3],
                        null,
                        AclOperation.ANY,
                        AclPermissionType.ANY));
    }

    /** user=NAME,client-id=NAME; no name is the default. */
    private static ClientQuotaEntity entity(String text) {
        Map<String, String> parts = new HashMap<>();
        for (String part : text.split(",")) {
            int at = part.indexOf('=');
            String name = part.substring(at + 1);
            parts.put(part.substring(0, at), name.isEmpty() ? null : name);
        }
        return new ClientQuotaEntity(parts);
    }

    private static String joined(Collection<?> things) {
        return things.stream().map(Object::toString).sorted().collect(Collectors.joining(" "));
    }
}
