"""Methods of AMQP's classes exchange and queue, RabbitMQ's extensions included."""

from msgspec import field

from mainstem.wire.amqp.method import Arguments, Flag, Long, Method, Short, ShortText


class ExchangeDeclare(Method):
    """Declares an exchange."""

    ID = (40, 10)
    NAME = "exchange.declare"
    reserved_1: Short = 0
    exchange: ShortText = ""
    type: ShortText = "direct"
    passive: Flag = False
    durable: Flag = False
    auto_delete: Flag = False
    internal: Flag = False
    nowait: Flag = False
    arguments: Arguments = field(default_factory=dict)


class ExchangeDeclareOk(Method):
    """Confirms ``exchange.declare``."""

    ID = (40, 11)
    NAME = "exchange.declare-ok"


class ExchangeDelete(Method):
    """Deletes an exchange."""

    ID = (40, 20)
    NAME = "exchange.delete"
    reserved_1: Short = 0
    exchange: ShortText = ""
    if_unused: Flag = False
    nowait: Flag = False


class ExchangeDeleteOk(Method):
    """Confirms ``exchange.delete``."""

    ID = (40, 21)
    NAME = "exchange.delete-ok"


class ExchangeBind(Method):
    """Binds an exchange to another exchange."""

    ID = (40, 30)
    NAME = "exchange.bind"
    reserved_1: Short = 0
    destination: ShortText = ""
    source: ShortText = ""
    routing_key: ShortText = ""
    nowait: Flag = False
    arguments: Arguments = field(default_factory=dict)


class ExchangeBindOk(Method):
    """Confirms ``exchange.bind``."""

    ID = (40, 31)
    NAME = "exchange.bind-ok"


class ExchangeUnbind(Method):
    """Deletes a binding between exchanges."""

    ID = (40, 40)
    NAME = "exchange.unbind"
    reserved_1: Short = 0
    destination: ShortText = ""
    source: ShortText = ""
    routing_key: ShortText = ""
    nowait: Flag = False
    arguments: Arguments = field(default_factory=dict)


class ExchangeUnbindOk(Method):
    """Confirms ``exchange.unbind``; its number is RabbitMQ's, out of the usual order."""

    ID = (40, 51)
    NAME = "exchange.unbind-ok"


class QueueDeclare(Method):
    """Declares a queue."""

    ID = (50, 10)
    NAME = "queue.declare"
    reserved_1: Short = 0
    queue: ShortText = ""
    passive: Flag = False
    durable: Flag = False
    exclusive: Flag = False
    auto_delete: Flag = False
    nowait: Flag = False
    arguments: Arguments = field(default_factory=dict)


class QueueDeclareOk(Method):
    """Confirms ``queue.declare`` with the name of the queue."""

    ID = (50, 11)
    NAME = "queue.declare-ok"
    queue: ShortText = ""
    message_count: Long = 0
    consumer_count: Long = 0


class QueueBind(Method):
    """Binds a queue to an exchange."""

    ID = (50, 20)
    NAME = "queue.bind"
    reserved_1: Short = 0
    queue: ShortText = ""
    exchange: ShortText = ""
    routing_key: ShortText = ""
    nowait: Flag = False
    arguments: Arguments = field(default_factory=dict)


class QueueBindOk(Method):
    """Confirms ``queue.bind``."""

    ID = (50, 21)
    NAME = "queue.bind-ok"


class QueuePurge(Method):
    """Purges a queue."""

    ID = (50, 30)
    NAME = "queue.purge"
    reserved_1: Short = 0
    queue: ShortText = ""
    nowait: Flag = False


class QueuePurgeOk(Method):
    """Confirms ``queue.purge``."""

    ID = (50, 31)
    NAME = "queue.purge-ok"
    message_count: Long = 0


class QueueDelete(Method):
    """Deletes a queue."""

    ID = (50, 40)
    NAME = "queue.delete"
    reserved_1: Short = 0
    queue: ShortText = ""
    if_unused: Flag = False
    if_empty: Flag = False
    nowait: Flag = False


class QueueDeleteOk(Method):
    """Confirms ``queue.delete``."""

    ID = (50, 41)
    NAME = "queue.delete-ok"
    message_count: Long = 0


class QueueUnbind(Method):
    """Deletes a binding of a queue."""

    ID = (50, 50)
    NAME = "queue.unbind"
    reserved_1: Short = 0
    queue: ShortText = ""
    exchange: ShortText = ""
    routing_key: ShortText = ""
    arguments: Arguments = field(default_factory=dict)


class QueueUnbindOk(Method):
    """Confirms ``queue.unbind``."""

    ID = (50, 51)
    NAME = "queue.unbind-ok"
