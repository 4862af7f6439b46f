"""Failures lock the pair of user and address, later the address; never a user everywhere."""

from tests.kit.clock import ManualClock

from mainstem.security.authentication.lockout import REMEMBERED_MAX, Lockout, LockoutSettings


def locked_after(lockout: Lockout, failures: int, user: str = "alice", address: str = "h") -> int:
    for _ in range(failures):
        lockout.failed(user, address)
    return lockout.locked_ms(user, address)


def test_a_few_failures_are_human() -> None:
    assert locked_after(Lockout(LockoutSettings(), ManualClock()), 4) == 0


def test_the_fifth_failure_locks_and_each_further_one_doubles_the_time() -> None:
    lockout = Lockout(LockoutSettings(), ManualClock())
    assert locked_after(lockout, 5) == 1_000
    assert locked_after(lockout, 1) == 2_000
    assert locked_after(lockout, 1) == 4_000
    assert locked_after(lockout, 40) == 300_000


def test_the_lock_opens_by_itself() -> None:
    clock = ManualClock()
    lockout = Lockout(LockoutSettings(), clock)
    locked_after(lockout, 5)
    clock.now_s += 1
    assert lockout.locked_ms("alice", "h") == 0


def test_a_stranger_cannot_lock_somebody_out_from_elsewhere() -> None:
    lockout = Lockout(LockoutSettings(), ManualClock())
    locked_after(lockout, 100, address="stranger")
    assert lockout.locked_ms("alice", "home") == 0


def test_an_address_that_tries_many_names_is_locked_for_all_of_them() -> None:
    lockout = Lockout(LockoutSettings(), ManualClock())
    for number in range(50):
        lockout.failed(f"user-{number}", "h")
    assert lockout.locked_ms("somebody-new", "h") == 1_000


def test_a_success_begins_afresh() -> None:
    lockout = Lockout(LockoutSettings(), ManualClock())
    locked_after(lockout, 4)
    lockout.succeeded("alice", "h")
    assert locked_after(lockout, 4) == 0


def test_old_failures_are_forgotten() -> None:
    clock = ManualClock()
    lockout = Lockout(LockoutSettings(), clock)
    locked_after(lockout, 4)
    clock.now_s += 901
    assert locked_after(lockout, 4) == 0


def test_the_memory_of_failures_is_bounded() -> None:
    lockout = Lockout(LockoutSettings(), ManualClock())
    locked_after(lockout, 5)
    for number in range(REMEMBERED_MAX):
        lockout.failed(f"user-{number}", f"address-{number}")
    assert len(lockout._pairs) <= REMEMBERED_MAX
    assert len(lockout._addresses) <= REMEMBERED_MAX


def test_one_stubborn_client_does_not_lock_out_its_neighbours() -> None:
    lockout = Lockout(LockoutSettings(), ManualClock())
    assert locked_after(lockout, 500, user="stubborn", address="shared") > 0
    assert lockout.locked_ms("neighbour", "shared") == 0


def test_tokens_that_name_nobody_lock_nobody() -> None:
    lockout = Lockout(LockoutSettings(), ManualClock())
    assert locked_after(lockout, 500, user="") == 0


def test_an_address_that_tries_a_million_names_is_locked_longer_and_costs_no_memory() -> None:
    lockout = Lockout(LockoutSettings(), ManualClock())
    for number in range(1_000):
        lockout.failed(f"user-{number}", "h")
    assert lockout.locked_ms("somebody-new", "h") == 300_000
    assert len(lockout._addresses["h"].names) < 100
