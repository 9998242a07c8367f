#!/usr/bin/env python3
"""Makes the sound that the study of the waveform checks listens to: about 80 minutes, the same on every run.

    testdata/quality/corpus.py DIR

Speech comes from espeak-ng, everything else from sox and from here. DIR gets mono WAV files of 16 bits and
manifest.tsv (file, kind, rate, seconds); where it holds what this script made before, nothing is done. Needs Debian's
espeak-ng and sox, Python's standard library, 350 MB of disk and about half a minute.
"""
import array
import concurrent.futures
import hashlib
import math
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import wave

HERE = pathlib.Path(__file__).parent
NATIVE = 22050  # espeak-ng's rate
RATES = [16000, NATIVE, 24000, 44100, 48000]
VARIANTS = ["", "+f1", "+m1", "+f2", "+m3", "+f3", "+croak", "+f4", "+m5", "+whisper", "+f5", "+m7", "+klatt2"]
LANGUAGES = ["en-us", "en-gb", "de", "fr-fr", "es", "it", "pt-br", "nl", "pl", "ru", "sv", "tr", "fi", "hi", "cmn",
             "en-gb-scotland", "en-us", "en-gb-x-rp", "es-419"]
MINOR = ["A2 E3 A3 C4 E4", "F2 C3 A3 C4 F4", "C3 G3 C4 E4 G4", "G2 D3 G3 B3 D4", "D3 A3 D4 F4 A4", "E2 B2 E3 G#3 B3"]


def run(*args, stdin=None):
    return subprocess.run([str(a) for a in args], input=stdin, check=True, stdout=subprocess.PIPE).stdout


def sox(*args):
    run("sox", "-V1", "-R", "-D", *args)  # the same noise each time; no dither, so that silence stays silence


def sentences(language):
    key = language.split("-")[0]
    lines = (HERE / "sentences.tsv").read_text(encoding="utf-8").splitlines()
    return [text for lang, text in (line.split("\t") for line in lines) if lang == key]


def write(path, rate, values):
    with wave.open(str(path), "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(rate)
        w.writeframes(bytes(values))


def say(voice, text):
    """Samples of a text, at NATIVE."""
    language, variant, pitch, speed = voice
    out = run("espeak-ng", "-v", language + variant, "-p", pitch, "-s", speed, "--stdin", "--stdout",
              stdin=text.encode())
    return out[44:]


def voice_of(rng, i):
    return LANGUAGES[i % len(LANGUAGES)], VARIANTS[i % len(VARIANTS)], rng.randint(15, 85), rng.randint(120, 240)


def talk(rng, i, seconds):
    """Speech of one voice, about as long as asked for."""
    voice = voice_of(rng, i)
    texts, out = [], b""
    while len(out) < 2 * NATIVE * seconds:
        texts = texts or rng.sample(sentences(voice[0]), k=len(sentences(voice[0])))
        out += say(voice, " ".join(texts.pop() for _ in range(min(4, len(texts)))))
    return out[: 2 * NATIVE * seconds]


def at_rate(tmp, pcm, rate, i):
    """Speech as a file of a rate. For 24 kHz it is played faster, so that it fills the whole band, as the speech of a
    model at this rate does; half of the higher rates get overtones above what espeak-ng has."""
    path = tmp / "speech.wav"
    if rate == 24000:
        write(path, rate, pcm)
        return path
    write(path, NATIVE, pcm)
    if rate == NATIVE:
        return path
    overtones = ["overdrive", "4", "5"] if rate > 24000 and i % 2 else []
    sox(path, tmp / "rated.wav", "gain", "-n", "-6", "rate", "-v", rate, *overtones)
    return tmp / "rated.wav"


def speech(tmp, out, rate, i, rng):
    path = at_rate(tmp, talk(rng, i, 80), rate, i)
    sox(path, out, "gain", "-n", -rng.randint(1, 14))


def speech_8k(tmp, out, rate, i, rng):
    path = at_rate(tmp, talk(rng, i, 50), NATIVE, i)
    sox(path, tmp / "narrow.wav", "gain", "-n", "-3", "rate", "-v", "8000")
    sox(tmp / "narrow.wav", out, "rate", "-v", rate, "gain", "-n", "-3")


def speech_lowpass(tmp, out, rate, i, rng):
    path = at_rate(tmp, talk(rng, i, 50), rate, i)
    sox(path, out, "gain", "-n", "-3", "sinc", -rng.choice([5000, 6000, 7000]))


def speech_quiet(tmp, out, rate, i, rng):
    """About -40 dBFS: the peaks of speech are some 15 dB above its level."""
    path = at_rate(tmp, talk(rng, i, 50), rate, i)
    sox(path, out, "gain", "-n", "-25")


def speech_pauses(tmp, out, rate, i, rng):
    """Sentences with up to 3 s between: zeros in even files, the hiss of a room in odd ones."""
    voice, pcm = voice_of(rng, i), b""
    while len(pcm) < 2 * NATIVE * 50:
        pcm += say(voice, rng.choice(sentences(voice[0]))) + bytes(2 * int(NATIVE * rng.uniform(0.2, 3)))
    path = at_rate(tmp, pcm, rate, i)
    if i % 2 == 0:
        sox(path, out, "gain", "-n", "-3")
        return
    sox(path, tmp / "even.wav", "gain", "-n", "-3")
    noise(tmp / "hiss.wav", "pink", rate, len(pcm) / 2 / NATIVE, -70)
    sox("-m", "-v", 1, tmp / "even.wav", "-v", 1, tmp / "hiss.wav", out)


def speech_noise(tmp, out, rate, i, rng):
    path = at_rate(tmp, talk(rng, i, 50), rate, i)
    sox(path, tmp / "even.wav", "gain", "-n", "-4")
    noise(tmp / "noise.wav", rng.choice(["white", "pink", "brown"]), rate, 50, rng.choice([-50, -40, -30, -20]))
    sox("-m", "-v", 1, tmp / "even.wav", "-v", 1, tmp / "noise.wav", out)


def noise(path, colour, rate, seconds, peak):
    sox("-n", "-r", rate, "-c", 1, "-b", 16, path, "synth", f"{seconds:.3f}", colour + "noise", "gain", "-n", peak)


def white(_tmp, out, rate, _i, rng):
    noise(out, "white", rate, 30, rng.choice([-3, -12, -30, -50]))


def pink(_tmp, out, rate, _i, rng):
    noise(out, "pink", rate, 30, rng.choice([-3, -12, -30, -50]))


def brown(_tmp, out, rate, _i, rng):
    noise(out, "brown", rate, 30, rng.choice([-3, -12, -30, -50]))


def strum(path, rate, notes, seconds, step):
    """One chord of plucked strings, one string after the other."""
    synth, delay = [], []
    for n, note in enumerate(notes):
        synth += ["pluck", note]
        delay.append(f"{n * step:.3f}")
    sox("-n", "-r", rate, "-c", 1, "-b", 16, path, "synth", f"{seconds:.3f}", *synth, "delay", *delay, "remix", "-",
        "trim", 0, f"{seconds:.3f}", "fade", 0.003, f"{seconds:.3f}", 0.15, "gain", "-n", -rng_level(notes))


def rng_level(notes):
    return 3 + len(notes)


def chords(tmp, rate, rng, seconds):
    parts, length = [], 0.0
    while length < seconds:
        part, last = tmp / f"chord{len(parts)}.wav", rng.uniform(1.2, 3.5)
        strum(part, rate, rng.choice(MINOR).split(), last, rng.choice([0.004, 0.03, 0.09]))
        for _ in range(rng.choice([0, 0, 3])):  # a run of single notes
            note = tmp / f"chord{len(parts)}n.wav"
            strum(note, rate, [rng.choice(rng.choice(MINOR).split())], 0.22, 0)
            parts, length = parts + [note], length + 0.22
        parts, length = parts + [part], length + last
    sox(*parts, tmp / "chords.wav")
    return tmp / "chords.wav"


def music_chords(tmp, out, rate, _i, rng):
    path = chords(tmp, rate, rng, 56)
    sox(path, out, "reverb", rng.choice([5, 30, 60]), "gain", "-n", "-2", "trim", 0, 55)


def music_beat(tmp, out, rate, _i, rng):
    """Chords over a drum and a cymbal that keep the beat."""
    beat = 60 / rng.randint(84, 150)
    form = ["-n", "-r", rate, "-c", 1, "-b", 16]
    sox(*form, tmp / "drum.wav", "synth", 0.18, "sine", "140-45", "fade", "l", 0.001, 0.18, 0.16, "gain", "-n", -4,
        "pad", 0, f"{beat - 0.18:.4f}", "repeat", int(56 / beat) + 1)
    sox(*form, tmp / "cymbal.wav", "synth", 0.06, "whitenoise", "vol", 0.5, "highpass", 5000, "fade", "l", 0.0005, 0.06, 0.05,
        "gain", "-n", -14, "pad", f"{beat / 2:.4f}", f"{beat / 2 - 0.06:.4f}", "repeat", int(56 / beat) + 1)
    sox("-m", "-v", 0.6, chords(tmp, rate, rng, 56), "-v", 0.5, tmp / "drum.wav", "-v", 0.8, tmp / "cymbal.wav", out,
        "tremolo", 0.37, 20, "gain", "-n", "-1", "trim", 0, 55)


def music_vibrato(_tmp, out, rate, _i, rng):
    """A melody of sung or bowed tones: harmonics, vibrato, glides from tone to tone."""
    table = [sum(math.sin(2 * math.pi * h * n / 4096) * 0.7 ** h for h in range(1, 14)) for n in range(4096)]
    values, phase, pitch, level = array.array("h"), 0.0, 220.0, 0.0
    for _ in range(80):
        goal, n = 220 * 2 ** (rng.choice([-5, 0, 2, 3, 5, 7, 8, 12, 15]) / 12), int(rate * rng.uniform(0.3, 1.1))
        loud, wobble = rng.choice([0, 2000, 4000, 6000, 7000]), rng.uniform(4.5, 6.5) * 2 * math.pi / rate
        for k in range(n):
            pitch += (goal - pitch) * 60 / rate
            level += (loud - level) * 40 / rate
            phase += pitch * (1 + 0.008 * math.sin(wobble * k)) * 4096 / rate
            values.append(int(level * table[int(phase) & 4095]))
    write(out, rate, values.tobytes())


# kind, how many files, who makes them
KINDS = [
    ("speech", 30, speech), ("speech-8k", 5, speech_8k), ("speech-lowpass", 5, speech_lowpass),
    ("speech-quiet", 5, speech_quiet), ("speech-pauses", 5, speech_pauses), ("speech-noise", 6, speech_noise),
    ("noise-white", 5, white), ("noise-pink", 5, pink), ("noise-brown", 5, brown),
    ("music-chords", 5, music_chords), ("music-beat", 5, music_beat), ("music-vibrato", 5, music_vibrato),
]


def one(folder, kind, i, make):
    name, rate = f"{kind}-{i:02d}.wav", RATES[i % len(RATES)]
    with tempfile.TemporaryDirectory() as tmp:
        make(pathlib.Path(tmp), folder / name, rate, i, random.Random(f"{kind} {i}"))
    with wave.open(str(folder / name)) as w:
        if (w.getframerate(), w.getnchannels(), w.getsampwidth()) != (rate, 1, 2):
            raise SystemExit(f"corpus: {name} came out in another format")
        return f"{name}\t{kind}\t{rate}\t{w.getnframes() / rate:.3f}"


def tools():
    espeak = run("espeak-ng", "--version").decode().split("Data")[0].split(":")[1].strip()
    return f"espeak-ng {espeak}, SoX {run('sox', '--version').decode().split()[-1]}"


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    for tool in ("espeak-ng", "sox"):
        if not shutil.which(tool):
            raise SystemExit(f"corpus: {tool} is missing")
    folder, made_by = pathlib.Path(sys.argv[1]), tools()
    parts = [pathlib.Path(__file__).read_bytes(), (HERE / "sentences.tsv").read_bytes(), made_by.encode()]
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()
    stamp = folder / ".made"
    if stamp.exists() and stamp.read_text() == key:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for old in [stamp, *folder.glob("*-[0-9][0-9].wav")]:
        old.unlink(missing_ok=True)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(one, folder, kind, i, make) for kind, count, make in KINDS for i in range(count)]
        lines = [job.result() for job in jobs]
    (folder / "manifest.tsv").write_text("\n".join([f"# {made_by}", *lines]) + "\n")
    stamp.write_text(key)
    minutes = sum(float(line.split("\t")[3]) for line in lines) / 60
    sys.stdout.write(f"corpus: {minutes:.0f} minutes of sound\n")


if __name__ == "__main__":
    main()
