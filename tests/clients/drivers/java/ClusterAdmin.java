import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterPartitionReassignmentsOptions;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringSerializer;

/** An administrator that does what each line of its input says and answers each line. */
public final class ClusterAdmin {
    private final String bootstrap;
    private final Admin admin;

    private ClusterAdmin(String bootstrap) {
        this.bootstrap = bootstrap;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "20000");
        settings.put("default.api.timeout.ms", "20000");
        admin = Admin.create(settings);
    }

    public static void main(String[] arguments) throws Exception {
        ClusterAdmin client = new ClusterAdmin(arguments[0]);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = "ok " + client.obey(line.split(" "));
            } catch (Exception error) {
                answer = name(error.getCause() == null ? error : error.getCause());
            }
            // What is logged goes the same way, but without the mark.
            System.out.println("> " + answer.replace('\n', ' '));
            System.out.flush();
        }
        client.admin.close(Duration.ofSeconds(1));
    }

    private static String name(Throwable error) {
        return error.getClass().getSimpleName() + " " + error.getMessage();
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "create":
                NewTopic topic = new NewTopic(words[1], Integer.parseInt(words[2]), (short) 1);
                admin.createTopics(List.of(topic)).all().get();
                return "";
            case "elect":
                return elect(words);
            case "reassign":
                return reassign(words);
            case "reassignments":
                return admin.listPartitionReassignments().reassignments().get().toString();
            case "move":
                TopicPartitionReplica replica = new TopicPartitionReplica(words[1], 0, 1);
                admin.alterReplicaLogDirs(Map.of(replica, words[2])).all().get();
                return "";
            case "folder":
                TopicPartitionReplica asked = new TopicPartitionReplica(words[1], 0, 1);
                return admin.describeReplicaLogDirs(Set.of(asked))
                        .values().get(asked).get().getCurrentReplicaLogDir();
            case "quorum":
                QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
                return quorum.leaderId() + " " + quorum.leaderEpoch() + " " + quorum.highWatermark()
                        + " " + quorum.voters().size() + " " + quorum.observers().size()
                        + " " + quorum.nodes().get(quorum.leaderId()).endpoints();
            case "features":
                FeatureMetadata features = admin.describeFeatures().featureMetadata().get();
                Map<String, Integer> levels = new TreeMap<>();
                features.finalizedFeatures()
                        .forEach((name, range) -> levels.put(name, (int) range.maxVersionLevel()));
                return levels + " " + features.finalizedFeaturesEpoch().get();
            case "feature":
                FeatureUpdate update = new FeatureUpdate(
                        Short.parseShort(words[2]), FeatureUpdate.UpgradeType.valueOf(words[3]));
                UpdateFeaturesOptions how = new UpdateFeaturesOptions();
                how.validateOnly(words.length > 4);
                admin.updateFeatures(Map.of(words[1], update), how).all().get();
                return "";
            case "unregister":
                admin.unregisterBroker(Integer.parseInt(words[1])).all().get();
                return "";
            case "nodes":
                return admin.describeCluster().nodes().get().stream()
                        .map(node -> String.valueOf(node.id())).sorted()
                        .collect(Collectors.joining(" "));
            case "group":
                ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(words[1]))
                        .describedGroups().get(words[1]).get();
                return group.type() + " " + group.groupState() + " " + group.members().stream()
                        .map(member -> member.clientId() + " "
                                + member.assignment().topicPartitions().size())
                        .sorted().collect(Collectors.joining(" "));
            case "subscribe":
                return subscribe(words);
            case "subscriptions":
                return admin.listConfigResources(
                                Set.of(ConfigResource.Type.CLIENT_METRICS),
                                new org.apache.kafka.clients.admin.ListConfigResourcesOptions())
                        .all().get().stream().map(ConfigResource::name).sorted()
                        .collect(Collectors.joining(" "));
            case "produce":
                return produce(words);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String elect(String[] words) throws Exception {
        Set<TopicPartition> partitions = null;
        if (words.length > 2) {
            partitions = Set.of(new TopicPartition(words[2], Integer.parseInt(words[3])));
        }
        Map<TopicPartition, Optional<Throwable>> outcome =
                admin.electLeaders(ElectionType.valueOf(words[1]), partitions).partitions().get();
        return outcome.values().stream()
                .map(error -> error.map(ClusterAdmin::name).orElse("elected"))
                .collect(Collectors.joining("; "));
    }

    private String reassign(String[] words) throws Exception {
        TopicPartition partition = new TopicPartition(words[1], Integer.parseInt(words[2]));
        Optional<NewPartitionReassignment> wanted = Optional.empty();
        if (words.length > 3) {
            List<Integer> nodes = Arrays.stream(words[3].split(",")).map(Integer::valueOf).toList();
            wanted = Optional.of(new NewPartitionReassignment(nodes));
        }
        AlterPartitionReassignmentsOptions how = new AlterPartitionReassignmentsOptions();
        how.allowReplicationFactorChange(words.length <= 4);
        admin.alterPartitionReassignments(Map.of(partition, wanted), how).all().get();
        return "";
    }

    private String subscribe(String[] words) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, words[1]);
        Collection<AlterConfigOp> changes = new ArrayList<>();
        for (String word : Arrays.asList(words).subList(2, words.length)) {
            String[] parts = word.split("=", 2);
            AlterConfigOp.OpType type =
                    parts[1].isEmpty() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET;
            changes.add(new AlterConfigOp(new ConfigEntry(parts[0], parts[1]), type));
        }
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().stream()
                .map(entry -> entry.name() + "=" + entry.value() + " from " + entry.source())
                .sorted().collect(Collectors.joining("; "));
    }

    private String produce(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", words[2]);
        settings.put("compression.type", "zstd");
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        String instance;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            instance = producer.clientInstanceId(Duration.ofSeconds(20)).toString();
            long end = System.currentTimeMillis() + Long.parseLong(words[3]);
            while (System.currentTimeMillis() < end) {
                producer.send(new ProducerRecord<>(words[1], "value")).get();
                Thread.sleep(20);
            }
        }
        return instance;
    }
}
