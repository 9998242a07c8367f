"""What NumPy and SciPy make of the samples that the tests of exporter/stats use.

    python3 -m venv v && v/bin/pip install numpy scipy
    v/bin/python scipy_cases.py > scipy.json

The output names the versions that it came from. It is drawn from a fixed seed: the same
versions give the same file.
"""

import json
import sys

import numpy as np
import scipy
from scipy import stats

rng = np.random.default_rng(20260729)
LEVEL = 0.95


def lognormal(n, sigma=0.3):
    return [float(x) for x in np.round(100 * np.exp(sigma * rng.standard_normal(n)), 3)]


def blocks(n, size, level=1.0):
    """n blocks of values with an effect of the block, some shorter than others."""
    return [[round(level * x * float(np.exp(e)), 3) for x in lognormal(size - i % 3)]
            for i, e in enumerate(0.1 * rng.standard_normal(n))]


STATISTICS = {"mean": np.mean, "median": np.median, "p90": lambda x: np.quantile(x, 0.9),
              "p99": lambda x: np.quantile(x, 0.99)}


def quantiles():
    samples = {
        "one": [7.0], "two": [20.0, 10.0], "ties": [1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 9.0], "equal": [0.1] * 5,
        "negative": [-5.0, -1.5, 0.0, 2.0], "lognormal": lognormal(64), "wide": [1e-9, 1.0, 1e9, 1e12],
    }
    ps = [0, 0.001, 0.25, 1 / 3, 0.5, 0.9, 0.95, 0.99, 0.999, 1]
    for name, v in samples.items():
        yield {"name": name, "values": v, "p": ps, "mean": float(np.mean(v)), "median": float(np.median(v)),
               "numpy": [float(x) for x in np.quantile(v, ps, method="linear")],
               "scipy": [float(x) for x in stats.quantile(v, ps, method="linear")]}


def student():
    for freedom in [1, 2, 3, 4.7, 5, 7, 11, 23.5, 49]:
        for level in [0.8, 0.9, 0.95, 0.99]:
            yield {"freedom": freedom, "level": level, "t": float(stats.t.ppf((1 + level) / 2, freedom))}


def changes():
    for n, m in [(2, 2), (4, 4), (6, 6), (12, 12), (4, 7), (9, 3)]:
        a, b = blocks(n, 70), blocks(m, 70, 1.05)
        case = {"a": a, "b": b, "level": LEVEL, "paired": n == m, "want": {}}
        for name, s in STATISTICS.items():
            la, lb = [np.log(s(x)) for x in a], [np.log(s(x)) for x in b]
            if n == m:
                d = np.subtract(lb, la)
                mid, i = np.mean(d), stats.ttest_1samp(d, 0).confidence_interval(LEVEL)
            else:
                mid = np.mean(lb) - np.mean(la)
                i = stats.ttest_ind(lb, la, equal_var=False).confidence_interval(LEVEL)
            case["want"][name] = {"estimate": float(np.expm1(mid)), "lo": float(np.expm1(i.low)), "hi": float(np.expm1(i.high))}
        yield case


def bootstraps():
    for n, name in [(60, "mean"), (60, "median"), (100, "p90"), (200, "mean")]:
        v = lognormal(n, 0.8)
        s = STATISTICS[name]
        r = stats.bootstrap((v,), s, n_resamples=100_000, batch=10_000, confidence_level=LEVEL, method="BCa",
                            vectorized=False, rng=np.random.default_rng(1))
        yield {"values": v, "statistic": name, "level": LEVEL, "estimate": float(s(v)),
               "lo": float(r.confidence_interval.low), "hi": float(r.confidence_interval.high)}


def errors():
    """Standard errors, of samples with values below 0: no logarithm there."""
    for n, name in [(4, "mean"), (8, "mean"), (9, "median")]:
        v = [float(x) for x in np.round(10 * rng.standard_normal(n), 3)]
        r = stats.bootstrap((v,), STATISTICS[name], n_resamples=100_000, vectorized=False, method="percentile",
                            rng=np.random.default_rng(1))
        yield {"values": v, "statistic": name, "level": LEVEL, "estimate": float(STATISTICS[name](v)),
               "standard_error": float(r.standard_error)}


def permutations():
    def difference(x, y):
        return np.mean(y) - np.mean(x)

    ties = [3.0, 5.0, 5.0, 8.0, 9.0, 9.0]
    samples = [(lognormal(4), lognormal(4)), (lognormal(8), [x * 1.2 for x in lognormal(8)]), (ties, [4.0, 5.0, 6.0, 8.0, 12.0, 9.0]),
               (ties, ties), (lognormal(5, 1.2), lognormal(5, 1.2)), (lognormal(20), [x * 1.1 for x in lognormal(20)]),
               (lognormal(3, 1), lognormal(7, 1)), (lognormal(9), [x * 1.3 for x in lognormal(9)]), ([-1.0, 0.0, 2.0], [3.0, 0.0, -7.0, 4.0])]
    for a, b in samples:
        for paired in [True, False]:
            if paired and len(a) != len(b):
                continue
            count = 2 ** len(a) if paired else scipy.special.comb(len(a) + len(b), len(a), exact=True)
            exact = count <= 1 << 16
            r = stats.permutation_test((a, b), difference, permutation_type="samples" if paired else "independent",
                                       n_resamples=np.inf if exact else 100_000, vectorized=False, rng=np.random.default_rng(1))
            yield {"a": a, "b": b, "paired": paired, "exact": exact, "p": float(r.pvalue)}


SECTIONS = {
    "versions": {"python": sys.version.split()[0], "numpy": np.__version__, "scipy": scipy.__version__},
    "quantiles": list(quantiles()), "student": list(student()), "changes": list(changes()), "bootstraps": list(bootstraps()),
    "errors": list(errors()), "permutations": list(permutations()),
}
print("{" + ",\n".join(json.dumps(k) + ":" + (json.dumps(v) if isinstance(v, dict) else "[" + ",\n".join(
    json.dumps(case, separators=(",", ":")) for case in v) + "]") for k, v in SECTIONS.items()) + "}")
