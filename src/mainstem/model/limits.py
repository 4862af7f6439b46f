"""Every limit in one table. A request beyond a limit is refused or slowed down."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# Frames and connections
FRAME_BYTES_MAX = 100 * MIB
CONNECTIONS_MAX = 10_000
# Connections that one address may hold at one listener without a login: an eighth of the
# descriptors for clients, but at least this many.
BEFORE_LOGIN_PER_ADDRESS_MIN = 32
# Frames that a connection may send ahead of a request that is still being served.
CONNECTION_BUFFER_BYTES = 256 * KIB
CONNECTION_PENDING_REPLIES_MAX = 1_000
CONNECTION_WRITE_BYTES_HIGH = 16 * MIB
# Bytes read and discarded between the last answer and the end of a connection.
CLOSE_DRAIN_BYTES_MAX = 64 * MIB
CLOSE_DRAIN_MS = 10_000
# All received bytes that wait in a node: unfinished frames and messages, frames sent ahead.
LARGE_FRAMES_BYTES_MAX = 512 * MIB
HTTP_BODY_BYTES_MAX = 1 * MIB

# Descriptors
DESCRIPTORS_MIN = 256
FILES_OPEN_MAX = 6_000
PEERS_MAX = 64

# Names
TOPIC_NAME_LENGTH_MAX = 249
GROUP_NAME_LENGTH_MAX = 1_000
CLIENT_ID_LENGTH_MAX = 4_096

# Between nodes: what one frame carries. A larger one is refused by the node that would send it.
PEER_FRAME_BYTES_MAX = 64 * MIB

# Batches and records
# No topic accepts a larger batch: with the state of a stream (100,000 producers: 12 MiB), sent
# before the first batch of a range, it has to fit into one frame between nodes.
BATCH_BYTES_MAX = 32 * MIB
# A message of any protocol, which becomes a batch with a head.
MESSAGE_BYTES_MAX = BATCH_BYTES_MAX - 1 * MIB
# A change of the catalogue; Raft sends entries whole.
RAFT_ENTRY_BYTES_MAX = 32 * MIB
DECOMPRESSED_BYTES_MAX = 256 * MIB
HEADERS_PER_RECORD_MAX = 10_000
DELETED_NAMES_REMEMBERED_MAX = 10_000  # of topics, until a client was informed of the deletion
WEBHOOK_WAITING_BYTES_MAX = 64 * MIB  # bodies of webhooks that wait for the disk
RECORD_ERRORS_PER_BATCH_MAX = 1_000  # named to a producer whose batch is refused

# Disk
DISK_RESERVE_BYTES_MIN = 16 * MIB  # kept for metadata: checkpoints, promises, seals, the catalogue
DISK_RESERVE_BYTES_MAX = 1 * GIB
DISK_BALLAST_BYTES_MAX = 64 * MIB  # released by a node that starts on a full disk

# Streams
PRODUCERS_PER_STREAM_MAX = 100_000
PRODUCER_BATCHES_REMEMBERED = 5
PARTITIONS_PER_TOPIC_MAX = 100_000
PARTITIONS_PER_NODE_MAX = 200_000
APPENDS_WAITING_PER_STREAM_MAX = 100_000
RANGE_PATHS_CACHED_MAX = 1_024
TOPIC_SETTINGS_CACHED_MAX = 256

# Fetch
FETCH_SESSIONS_MAX = 1_000
FETCH_RESPONSE_BYTES_MAX = 55 * MIB
FETCH_WAIT_MS_MAX = 300_000
PARKED_FETCHES_MAX = 100_000

# Groups
GROUPS_MAX = 100_000
GROUP_MEMBERS_MAX = 10_000
GROUP_METADATA_BYTES_MAX = 4 * MIB
OFFSET_METADATA_BYTES_MAX = 4 * KIB

# Transactions
TRANSACTIONAL_IDS_MAX = 100_000
TRANSACTIONAL_ID_LENGTH_MAX = 4_096

# Queues
QUEUE_NAME_BYTES_MAX = 255
QUEUES_PER_SHARD_MAX = 100_000
EXCHANGES_PER_NAMESPACE_MAX = 10_000
BINDINGS_PER_NAMESPACE_MAX = 1_000_000
# Bindings that ended but still route messages behind a router's cursor.
BINDINGS_ENDED_MAX = 100_000
BINDING_ARGUMENTS_MAX = 64
ROUTES_REMEMBERED_MAX = 10_000
ROUTED_UNSTORED_MAX = 100_000
# Messages that a queue tracks in memory; publishers are refused beyond it.
QUEUE_MESSAGES_MAX = 4_000_000
QUEUE_CONSUMERS_MAX = 10_000
QUEUE_SUBSCRIBERS_MAX = 1_000
QUEUE_PRIORITY_MAX = 255
QUEUE_SOURCES_MAX = 10_000
QUEUE_LENDERS_MAX = 1_000
DELIVERIES_PER_TURN_MAX = 1_000
DELIVERIES_UNSETTLED_PER_CHANNEL_MAX = 1_000_000
DEATHS_REMEMBERED_MAX = 64

# Catalogue
COMMANDS_WAITING_MAX = 10_000
COMMANDS_PER_APPEND_MAX = 1_000
# Decisions whose ids and replies are kept, so that a repeated command gets the same answer.
COMMANDS_REMEMBERED_MAX = 4_096
# A larger reply is not kept: a repeated command is refused as already decided.
COMMAND_REPLY_REMEMBERED_BYTES_MAX = 4 * KIB
