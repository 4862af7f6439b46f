"""``mainstem cert``: makes certificates for development, and shows any certificate."""

import datetime
import socket
import ssl
from pathlib import Path
from typing import Annotated

import typer

from mainstem.cli.errors import UsageFailure
from mainstem.cli.output.render import Output, show_one, show_rows
from mainstem.cli.parameters.shared import OutputForm
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable

app = typer.Typer(help="Certificates for TLS.", no_args_is_help=True)

AUTHORITY_DAYS = 3_650
CONNECT_TIMEOUT_S = 10


@app.command("make")
def make(
    name: Annotated[str, typer.Argument(help="Common name, and name of the files.")] = "node",
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="A name or address that clients connect to; may be repeated.  "
            "[default: this machine and loopback]",
        ),
    ] = None,
    client: Annotated[
        bool, typer.Option("--client", help="For a client that logs in with it, not for a node.")
    ] = False,
    folder: Annotated[
        Path,
        typer.Option(
            "--folder", "-d", help="Folder of the files, those of the authority included."
        ),
    ] = Path("certs"),
    days: Annotated[int, typer.Option("--days", min=1, max=36_500, help="Validity in days.")] = 365,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing certificate of that name.")
    ] = False,
    output: OutputForm = Output.TABLE,
) -> None:
    """Make a certificate, and the authority that signs it if the folder has none yet."""
    from mainstem.cli.development import certificates as made

    if client and host:
        raise UsageFailure("a client certificate has no hosts", subject="--host")
    if name in ("", made.AUTHORITY) or Path(name).name != name:
        raise UsageFailure("not a valid name for a certificate", subject=name)
    authority = made.Pair.named(folder, made.AUTHORITY)
    pair = made.Pair.named(folder, name)
    if pair.certificate.exists() and not replace:
        raise InvalidRequest(
            ErrorCode.DUPLICATE_RESOURCE,
            "a certificate of that name exists",
            subject=str(pair.certificate),
            remedy="--replace makes a new one",
        )
    now = datetime.datetime.now(datetime.UTC)
    if not authority.certificate.exists():
        made.make_authority(authority, AUTHORITY_DAYS, now)
    hosts = [] if client else host or _own_names()
    made.issue(authority, made.Order(name, hosts, days), pair, now)
    facts: dict[str, object] = {
        "certificate": str(pair.certificate),
        "key": str(pair.key),
        "authority": str(authority.certificate),
        "hosts": hosts,
        "days": days,
    }
    show_one(facts, output)
    if output is Output.TABLE:
        print(_paste(pair, authority, client=client))


def _own_names() -> list[str]:
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", socket.gethostname()]))


def _paste(pair: object, authority: object, *, client: bool) -> str:
    from mainstem.cli.development.certificates import Pair

    assert isinstance(pair, Pair)
    assert isinstance(authority, Pair)
    trusted = authority.certificate.absolute()
    shown, key = pair.certificate.absolute(), pair.key.absolute()
    if client:
        return (
            "\nLog in with it:\n\n"
            f"  mainstem topic list --ca-file {trusted} --cert-file {shown} --key-file {key}\n"
        )
    return (
        "\nAdd to the configuration of the node:\n\n"
        "  [tls]\n"
        f'  certificate_file = "{shown}"\n'
        f'  key_file = "{key}"\n'
        f'  client_ca_file = "{trusted}"\n'
        "\nLet clients trust the authority:\n\n"
        f"  mainstem topic list --ca-file {trusted}\n"
    )


@app.command("show")
def show(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help="PEM files.")
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option(
            "--connect", metavar="HOST:PORT", help="Show the certificate that a listener presents."
        ),
    ] = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show certificates: names, hosts, validity and the principal they authenticate."""
    from mainstem.cli.development.certificates import describe

    now = datetime.datetime.now(datetime.UTC)
    rows: list[dict[str, object]] = []
    for path in files or []:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UsageFailure(error.strerror or str(error), subject=str(path)) from error
        rows += [{"from": str(path), **facts} for facts in describe(data, now)]
    if connect is not None:
        rows += [{"from": connect, **facts} for facts in describe(_shown_by(connect), now)]
    if not rows:
        raise UsageFailure("nothing to show", remedy="give files, or --connect HOST:PORT")
    if output is not Output.TABLE:
        show_rows(rows, output)
        return
    for index, row in enumerate(rows):
        if index:
            print()
        show_one(row, output)


def _shown_by(address: str) -> bytes:
    from mainstem.client.cluster import parse_address

    host, port = parse_address(address)
    # It is only shown, so it is not verified.
    try:
        return ssl.get_server_certificate((host, port), timeout=CONNECT_TIMEOUT_S).encode()
    except (OSError, ValueError) as error:
        raise Unavailable(
            ErrorCode.WRITER_UNAVAILABLE,
            f"no certificate was presented: {getattr(error, 'strerror', None) or error}",
            subject=address,
            remedy="check that the listener uses TLS",
        ) from error
