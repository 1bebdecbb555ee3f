"""Speech synthesis with espeak-ng, in a process of its own: only a fresh one gives the same samples, as it keeps state.

Reads JSON lines [voice, word, words per minute, pitch 0-100] on stdin; writes, for each, a little-endian uint32 count
and that many int16 samples at 22,050 Hz on stdout. Ends with a message on stderr and code 1 where a voice is unknown.
Run by `spoken_digits.py` as a file, so it imports nothing of seqkit.
"""

import ctypes
import json
import struct
import sys
from pathlib import Path

# speak_lib.h: AUDIO_OUTPUT_SYNCHRONOUS, espeakCHARS_UTF8, parameters
SYNCHRONOUS, UTF8, RATE, PITCH = 2, 1, 1, 3


def main() -> None:
    import espeakng_loader

    data = espeakng_loader.get_data_path()
    lib = ctypes.CDLL(espeakng_loader.get_library_path())
    sound: list[bytes] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    def keep(samples, count, _events):  # type: ignore[no-untyped-def]
        if samples and count > 0:
            sound.append(ctypes.string_at(samples, 2 * count))
        return 0

    # synchronous, not retrieval: it needs no thread and is 30 times as fast
    if lib.espeak_Initialize(SYNCHRONOUS, 0, data.encode(), 0) != 22050:
        sys.exit("espeak-ng does not start")
    lib.espeak_SetSynthCallback(keep)
    for line in sys.stdin:
        voice, word, rate, pitch = json.loads(line)
        # or espeak-ng takes another
        is_known = (Path(data) / "voices" / "!v" / voice.partition("+")[2]).is_file()
        if not is_known or lib.espeak_SetVoiceByName(voice.encode()) != 0:
            sys.exit(f"espeak-ng has no voice {voice!r}")
        lib.espeak_SetParameter(RATE, rate, 0)
        lib.espeak_SetParameter(PITCH, pitch, 0)
        # breath is noise, seeded by the clock otherwise
        lib.espeak_ng_SetRandSeed(ctypes.c_long(1))
        sound.clear()
        text = word.encode()
        if lib.espeak_Synth(text, len(text) + 1, 0, 1, 0, UTF8, None, None) != 0 or not sound:
            sys.exit(f"espeak-ng cannot say {word!r} in voice {voice!r}")
        samples = b"".join(sound)
        sys.stdout.buffer.write(struct.pack("<I", len(samples) // 2) + samples)


if __name__ == "__main__":
    main()
