"""Methods of AMQP's classes connection and channel, RabbitMQ's extensions included."""

from msgspec import field

from mainstem.wire.amqp.method import (
    Arguments,
    Flag,
    Long,
    LongBytes,
    Method,
    Octet,
    Short,
    ShortText,
)


class ConnectionStart(Method):
    """The server's first method: versions, properties and mechanisms."""

    ID = (10, 10)
    NAME = "connection.start"
    version_major: Octet = 0
    version_minor: Octet = 9
    server_properties: Arguments = field(default_factory=dict)
    mechanisms: LongBytes = b"PLAIN"
    locales: LongBytes = b"en_US"


class ConnectionStartOk(Method):
    """The client chooses a mechanism and starts to log in."""

    ID = (10, 11)
    NAME = "connection.start-ok"
    client_properties: Arguments = field(default_factory=dict)
    mechanism: ShortText = "PLAIN"
    response: LongBytes = b""
    locale: ShortText = "en_US"


class ConnectionSecure(Method):
    """A SASL challenge."""

    ID = (10, 20)
    NAME = "connection.secure"
    challenge: LongBytes = b""


class ConnectionSecureOk(Method):
    """The response to a SASL challenge."""

    ID = (10, 21)
    NAME = "connection.secure-ok"
    response: LongBytes = b""


class ConnectionTune(Method):
    """The limits that the server proposes."""

    ID = (10, 30)
    NAME = "connection.tune"
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionTuneOk(Method):
    """The limits that the client chose."""

    ID = (10, 31)
    NAME = "connection.tune-ok"
    channel_max: Short = 0
    frame_max: Long = 0
    heartbeat: Short = 0


class ConnectionOpen(Method):
    """The client chooses a virtual host."""

    ID = (10, 40)
    NAME = "connection.open"
    virtual_host: ShortText = "/"
    reserved_1: ShortText = ""
    reserved_2: Flag = False


class ConnectionOpenOk(Method):
    """Confirms ``connection.open``."""

    ID = (10, 41)
    NAME = "connection.open-ok"
    reserved_1: ShortText = ""


class ConnectionClose(Method):
    """Closes the connection, with a reason."""

    ID = (10, 50)
    NAME = "connection.close"
    reply_code: Short = 200
    reply_text: ShortText = ""
    failed_class: Short = 0
    failed_method: Short = 0


class ConnectionCloseOk(Method):
    """Confirms ``connection.close``."""

    ID = (10, 51)
    NAME = "connection.close-ok"


class ConnectionBlocked(Method):
    """The server stops reading from publishers for now."""

    ID = (10, 60)
    NAME = "connection.blocked"
    reason: ShortText = ""


class ConnectionUnblocked(Method):
    """The server reads from publishers again."""

    ID = (10, 61)
    NAME = "connection.unblocked"


class ConnectionUpdateSecret(Method):
    """A new secret for the same user."""

    ID = (10, 70)
    NAME = "connection.update-secret"
    new_secret: LongBytes = b""
    reason: ShortText = ""


class ConnectionUpdateSecretOk(Method):
    """Confirms ``connection.update-secret``."""

    ID = (10, 71)
    NAME = "connection.update-secret-ok"


class ChannelOpen(Method):
    """Opens a channel."""

    ID = (20, 10)
    NAME = "channel.open"
    reserved_1: ShortText = ""


class ChannelOpenOk(Method):
    """Confirms ``channel.open``."""

    ID = (20, 11)
    NAME = "channel.open-ok"
    reserved_1: LongBytes = b""


class ChannelFlow(Method):
    """Pauses or resumes deliveries."""

    ID = (20, 20)
    NAME = "channel.flow"
    active: Flag = True


class ChannelFlowOk(Method):
    """Confirms ``channel.flow``."""

    ID = (20, 21)
    NAME = "channel.flow-ok"
    active: Flag = True


class ChannelClose(Method):
    """Closes a channel, with a reason."""

    ID = (20, 40)
    NAME = "channel.close"
    reply_code: Short = 200
    reply_text: ShortText = ""
    failed_class: Short = 0
    failed_method: Short = 0


class ChannelCloseOk(Method):
    """Confirms ``channel.close``."""

    ID = (20, 41)
    NAME = "channel.close-ok"
