/* Loads a Kafka server through librdkafka and prints one JSON line about it.
 *
 *   rdload produce <bootstrap> <topic> <count> <size> [setting=value ...]
 *   rdload consume <bootstrap> <topic> <count> <size> [setting=value ...]
 *   rdload latency <bootstrap> <topic> <count> <size> [setting=value ...]
 *   rdload transact <bootstrap> <topic> <count> <size> [setting=value ...]
 *
 * Only partition 0 is used, except by `transact`, which commits <count> transactions of 1,000
 * messages each over partitions 0, 1 and 2. `latency` sends one record per millisecond and measures each from
 * the call of produce to its arrival in the consumer of the same process.
 */
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static long delivered, failed;

static void die(const char *what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static long long now_ns(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static double cpu_s(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
         (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
  (void)client;
  (void)opaque;
  if (message->err)
    failed++;
  else
    delivered++;
}

static void set(rd_kafka_conf_t *settings, const char *name, const char *value) {
  char error[256];
  if (rd_kafka_conf_set(settings, name, value, error, sizeof(error)) != RD_KAFKA_CONF_OK)
    die(error);
}

/* Settings whose name begins with "p." or "c." are for the producer or the consumer alone. */
static rd_kafka_t *client(rd_kafka_type_t type, const char *bootstrap, int given, char **settings) {
  char error[256];
  rd_kafka_conf_t *chosen = rd_kafka_conf_new();
  set(chosen, "bootstrap.servers", bootstrap);
  set(chosen, "log_level", "3");
  if (type == RD_KAFKA_PRODUCER)
    rd_kafka_conf_set_dr_msg_cb(chosen, on_delivery);
  else {
    set(chosen, "group.id", "rdload");
    set(chosen, "enable.auto.commit", "false");
    set(chosen, "auto.offset.reset", "earliest");
  }
  for (int i = 0; i < given; i++) {
    char name[256];
    const char *value = strchr(settings[i], '=');
    if (!value) die("a setting needs a value");
    snprintf(name, sizeof(name), "%.*s", (int)(value - settings[i]), settings[i]);
    char only = name[1] == '.' ? name[0] : 0;
    if (only && only != (type == RD_KAFKA_PRODUCER ? 'p' : 'c')) continue;
    set(chosen, only ? name + 2 : name, value + 1);
  }
  rd_kafka_t *made = rd_kafka_new(type, chosen, error, sizeof(error));
  if (!made) die(error);
  if (type == RD_KAFKA_CONSUMER) rd_kafka_poll_set_consumer(made);
  return made;
}

static void send_one(rd_kafka_t *producer, const char *topic, int partition, char *value,
                     size_t size) {
  for (;;) {
    rd_kafka_resp_err_t error = rd_kafka_producev(
        producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_VALUE(value, size), RD_KAFKA_V_END);
    if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return;
    if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL) die(rd_kafka_err2str(error));
    rd_kafka_poll(producer, 5);
  }
}

static void assign(rd_kafka_t *consumer, const char *topic, int64_t offset) {
  rd_kafka_topic_partition_list_t *wanted = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(wanted, topic, 0)->offset = offset;
  if (rd_kafka_assign(consumer, wanted)) die("could not assign");
  rd_kafka_topic_partition_list_destroy(wanted);
}

static void produce(const char *bootstrap, const char *topic, long count, size_t size, int given,
                    char **settings) {
  rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, bootstrap, given, settings);
  char *value = malloc(size);
  for (size_t i = 0; i < size; i++) value[i] = 'a' + (char)(i % 26);
  long long began = now_ns();
  for (long i = 0; i < count; i++) {
    send_one(producer, topic, 0, value, size);
    if (i % 1000 == 0) rd_kafka_poll(producer, 0);
  }
  if (rd_kafka_flush(producer, 120000)) die("not everything was delivered in time");
  double seconds = (now_ns() - began) / 1e9;
  if (failed || delivered != count) die("deliveries failed");
  printf("{\"messages\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.3f}\n", delivered, seconds,
         cpu_s());
}

static void check(rd_kafka_error_t *error) {
  if (error) die(rd_kafka_error_string(error));
}

static void transact(const char *bootstrap, const char *topic, long count, size_t size, int given,
                     char **settings) {
  rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, bootstrap, given, settings);
  char *value = calloc(1, size);
  check(rd_kafka_init_transactions(producer, 60000));
  long long began = now_ns();
  for (long i = 0; i < count; i++) {
    check(rd_kafka_begin_transaction(producer));
    for (int message = 0; message < 1000; message++)
      send_one(producer, topic, message % 3, value, size);
    check(rd_kafka_commit_transaction(producer, 60000));
  }
  double seconds = (now_ns() - began) / 1e9;
  rd_kafka_poll(producer, 0);
  if (failed || delivered != count * 1000) die("deliveries failed");
  printf("{\"messages\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.3f}\n", count, seconds,
         cpu_s());
}

static void consume(const char *bootstrap, const char *topic, long count, size_t size, int given,
                    char **settings) {
  rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, bootstrap, given, settings);
  rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(consumer);
  rd_kafka_message_t *messages[10000];
  assign(consumer, topic, 0);
  long got = 0, bytes = 0;
  long long began = now_ns(), limit = began + 120000000000LL;
  while (got < count) {
    if (now_ns() > limit) die("not everything was read in time");
    ssize_t n = rd_kafka_consume_batch_queue(queue, 1000, messages, 10000);
    for (ssize_t i = 0; i < n; i++) {
      if (!messages[i]->err) {
        if (messages[i]->len != size) die("a record has the wrong size");
        got++;
        bytes += messages[i]->len;
      }
      rd_kafka_message_destroy(messages[i]);
    }
  }
  double seconds = (now_ns() - began) / 1e9;
  printf("{\"messages\": %ld, \"bytes\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.3f}\n", got,
         bytes, seconds, cpu_s());
}

struct arrivals {
  rd_kafka_t *consumer;
  long count;
  long long *took_ns;
  volatile int ready;
};

static void *receive(void *argument) {
  struct arrivals *arrivals = argument;
  for (long got = 0; got < arrivals->count;) {
    rd_kafka_message_t *message = rd_kafka_consumer_poll(arrivals->consumer, 1000);
    if (!message) continue;
    if (!message->err) {
      long long sent;
      memcpy(&sent, message->payload, sizeof(sent));
      if (sent == 0)
        arrivals->ready = 1;
      else
        arrivals->took_ns[got++] = now_ns() - sent;
    }
    rd_kafka_message_destroy(message);
  }
  return NULL;
}

static int by_size(const void *left, const void *right) {
  long long a = *(const long long *)left, b = *(const long long *)right;
  return (a > b) - (a < b);
}

static void latency(const char *bootstrap, const char *topic, long count, size_t size, int given,
                    char **settings) {
  if (size < sizeof(long long)) die("a record must hold its time");
  rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, bootstrap, given, settings);
  struct arrivals arrivals = {client(RD_KAFKA_CONSUMER, bootstrap, given, settings), count,
                              calloc((size_t)count, sizeof(long long)), 0};
  assign(arrivals.consumer, topic, RD_KAFKA_OFFSET_END);
  pthread_t receiver;
  pthread_create(&receiver, NULL, receive, &arrivals);
  char *value = calloc(1, size);
  /* Records with time 0 only show that both ends are connected. */
  while (!arrivals.ready) {
    send_one(producer, topic, 0, value, size);
    rd_kafka_poll(producer, 20);
  }
  usleep(300000);
  long long next = now_ns();
  for (long i = 0; i < count; i++) {
    next += 1000000;
    while (now_ns() < next) rd_kafka_poll(producer, 0), usleep(50);
    long long sent = now_ns();
    memcpy(value, &sent, sizeof(sent));
    send_one(producer, topic, 0, value, size);
  }
  pthread_join(receiver, NULL);
  qsort(arrivals.took_ns, (size_t)count, sizeof(long long), by_size);
  printf("{\"messages\": %ld, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, "
         "\"p999_us\": %.1f, \"seconds\": %.3f}\n",
         count, arrivals.took_ns[count / 2] / 1e3, arrivals.took_ns[count * 9 / 10] / 1e3,
         arrivals.took_ns[count * 99 / 100] / 1e3, arrivals.took_ns[count * 999 / 1000] / 1e3,
         count / 1e3);
}

int main(int count, char **words) {
  if (count < 6)
    die("usage: rdload produce|consume|latency|transact <bootstrap> <topic> <count> <size> ...");
  const char *mode = words[1], *bootstrap = words[2], *topic = words[3];
  long messages = atol(words[4]);
  size_t size = (size_t)atol(words[5]);
  if (!strcmp(mode, "produce"))
    produce(bootstrap, topic, messages, size, count - 6, words + 6);
  else if (!strcmp(mode, "consume"))
    consume(bootstrap, topic, messages, size, count - 6, words + 6);
  else if (!strcmp(mode, "latency"))
    latency(bootstrap, topic, messages, size, count - 6, words + 6);
  else if (!strcmp(mode, "transact"))
    transact(bootstrap, topic, messages, size, count - 6, words + 6);
  else
    die("unknown mode");
  fflush(stdout);
  /* The clients' own goodbye is not what is measured. */
  _exit(0);
}
