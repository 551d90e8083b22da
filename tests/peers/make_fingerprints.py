"""Write `fingerprints.json`: what FarmHash answers for words of each length.

    python tests/peers/make_fingerprints.py

needs the FarmHash library (`pip install cityhash`), not paceline. The words are made of printable
characters, for JSON's sake, in an order that is different in each.
"""

import json
from pathlib import Path

import farmhash

LENGTHS = [*range(70), 127, 128, 129, 191, 192, 193, 1000]


def word(length: int) -> str:
    return "".join(chr(33 + (7 * i * i + 11 * length + 3 * i) % 94) for i in range(length))


def main() -> None:
    words = [word(length) for length in LENGTHS]
    answers = {word: farmhash.Fingerprint64(word.encode()) for word in words}
    path = Path(__file__).with_name("fingerprints.json")
    path.write_text(json.dumps(answers, indent=0) + "\n")


if __name__ == "__main__":
    main()
