"""What several threads make, for tests in which each is a trainer or a worker."""

import contextvars
import threading


def in_threads(num, work):
    """What `work(rank)` returns in each of so many threads; raises what the first has raised."""
    found, errors = [None] * num, []

    def run(rank):
        try:
            found[rank] = work(rank)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(run, rank))
        for rank in range(num)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found
