"""Methods of AMQP's classes basic, confirm and tx, RabbitMQ's extensions included."""

from msgspec import field

from mainstem.wire.amqp.method import Arguments, Flag, Long, LongLong, Method, Short, ShortText


class BasicQos(Method):
    """Sets the prefetch limit."""

    ID = (60, 10)
    NAME = "basic.qos"
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    is_global: Flag = False


class BasicQosOk(Method):
    """Confirms ``basic.qos``."""

    ID = (60, 11)
    NAME = "basic.qos-ok"


class BasicConsume(Method):
    """Starts a consumer."""

    ID = (60, 20)
    NAME = "basic.consume"
    reserved_1: Short = 0
    queue: ShortText = ""
    consumer_tag: ShortText = ""
    no_local: Flag = False
    no_ack: Flag = False
    exclusive: Flag = False
    nowait: Flag = False
    arguments: Arguments = field(default_factory=dict)


class BasicConsumeOk(Method):
    """Confirms ``basic.consume`` with the consumer tag."""

    ID = (60, 21)
    NAME = "basic.consume-ok"
    consumer_tag: ShortText = ""


class BasicCancel(Method):
    """Ends a consumer; from the server: its queue is gone."""

    ID = (60, 30)
    NAME = "basic.cancel"
    consumer_tag: ShortText = ""
    nowait: Flag = False


class BasicCancelOk(Method):
    """Confirms ``basic.cancel``."""

    ID = (60, 31)
    NAME = "basic.cancel-ok"
    consumer_tag: ShortText = ""


class BasicPublish(Method):
    """Publishes a message to an exchange; its content follows."""

    ID = (60, 40)
    NAME = "basic.publish"
    reserved_1: Short = 0
    exchange: ShortText = ""
    routing_key: ShortText = ""
    mandatory: Flag = False
    immediate: Flag = False


class BasicReturn(Method):
    """Returns a message that was not routed; its content follows."""

    ID = (60, 50)
    NAME = "basic.return"
    reply_code: Short = 312
    reply_text: ShortText = ""
    exchange: ShortText = ""
    routing_key: ShortText = ""


class BasicDeliver(Method):
    """Delivers a message to a consumer; its content follows."""

    ID = (60, 60)
    NAME = "basic.deliver"
    consumer_tag: ShortText = ""
    delivery_tag: LongLong = 0
    redelivered: Flag = False
    exchange: ShortText = ""
    routing_key: ShortText = ""


class BasicGet(Method):
    """Requests one message."""

    ID = (60, 70)
    NAME = "basic.get"
    reserved_1: Short = 0
    queue: ShortText = ""
    no_ack: Flag = False


class BasicGetOk(Method):
    """Answers ``basic.get`` with a message; its content follows."""

    ID = (60, 71)
    NAME = "basic.get-ok"
    delivery_tag: LongLong = 0
    redelivered: Flag = False
    exchange: ShortText = ""
    routing_key: ShortText = ""
    message_count: Long = 0


class BasicGetEmpty(Method):
    """Answers ``basic.get``: the queue is empty."""

    ID = (60, 72)
    NAME = "basic.get-empty"
    reserved_1: ShortText = ""


class BasicAck(Method):
    """Acknowledges: from a client a delivery, from a server a publish."""

    ID = (60, 80)
    NAME = "basic.ack"
    delivery_tag: LongLong = 0
    multiple: Flag = False


class BasicReject(Method):
    """Rejects a delivery."""

    ID = (60, 90)
    NAME = "basic.reject"
    delivery_tag: LongLong = 0
    requeue: Flag = True


class BasicRecoverAsync(Method):
    """Requests redelivery of all unsettled messages, without a response."""

    ID = (60, 100)
    NAME = "basic.recover-async"
    requeue: Flag = False


class BasicRecover(Method):
    """Requests redelivery of all unsettled messages."""

    ID = (60, 110)
    NAME = "basic.recover"
    requeue: Flag = False


class BasicRecoverOk(Method):
    """Confirms ``basic.recover``."""

    ID = (60, 111)
    NAME = "basic.recover-ok"


class BasicNack(Method):
    """Rejects deliveries; from a server: publishes that were refused."""

    ID = (60, 120)
    NAME = "basic.nack"
    delivery_tag: LongLong = 0
    multiple: Flag = False
    requeue: Flag = True


class ConfirmSelect(Method):
    """Enables publisher confirms."""

    ID = (85, 10)
    NAME = "confirm.select"
    nowait: Flag = False


class ConfirmSelectOk(Method):
    """Confirms ``confirm.select``."""

    ID = (85, 11)
    NAME = "confirm.select-ok"


class TxSelect(Method):
    """Makes publishes and acknowledgements wait for a commit."""

    ID = (90, 10)
    NAME = "tx.select"


class TxSelectOk(Method):
    """Confirms ``tx.select``."""

    ID = (90, 11)
    NAME = "tx.select-ok"


class TxCommit(Method):
    """Commits the transaction."""

    ID = (90, 20)
    NAME = "tx.commit"


class TxCommitOk(Method):
    """Confirms ``tx.commit``."""

    ID = (90, 21)
    NAME = "tx.commit-ok"


class TxRollback(Method):
    """Rolls the transaction back."""

    ID = (90, 30)
    NAME = "tx.rollback"


class TxRollbackOk(Method):
    """Confirms ``tx.rollback``."""

    ID = (90, 31)
    NAME = "tx.rollback-ok"
