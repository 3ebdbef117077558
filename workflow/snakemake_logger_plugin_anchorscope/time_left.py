"""How long a run will still take, judged by what its jobs have taken so far."""

from collections import Counter, defaultdict
from statistics import mean

# Seconds of one job with the default model, between those of a fast and of a slow machine. A run only takes proportions
# from here, and for a rule of which a job has finished not even those.
WEIGHTS = {
    "fetch_questions": 2,
    "normalize": 2,
    "fetch_model": 25,
    "answer": 60,
    "choose": 1,
    "ask_unsure": 320,
    "sample_answers": 190,
    "extract": 95,
    "extract_experiment": 45,
    "run_again": 50,
    "saliency": 80,
    "probe": 20,
    "read_text": 4,
    "estimate": 23,
    "weigh_kinds": 10,
    "score_experiment": 10,
    "tell_groups": 20,
    "estimate_experiment": 3,
    "summarise_experiments": 1,
    "fit_gates": 4,
    "score_methods": 12,
    "carry_over": 35,
    "train_detector": 20,
    "compare_methods": 2,
    "draw_detection": 14,
    "summarise": 3,
    "count_examples": 1,
    "draw": 25,
    "read_licences": 3,
    "provenance": 1,
    "report": 12,
}
WEIGHT_OF_OTHERS = mean(WEIGHTS.values())
TARGETS = ("all", "fetch", "answers", "activations", "tables", "salmon", "figures", "detect")  # do nothing themselves
# Nothing is said before this share of the work is done: the first jobs are small and say little about the large ones.
SHARE_TO_SEE = 0.1


def weight(rule: str) -> float:
    rule = rule.removeprefix("anchorscope_")  # their names in another workflow that uses them
    return 1 if rule in TARGETS else WEIGHTS.get(rule, WEIGHT_OF_OTHERS)


class Work:
    """The jobs of a run: planned, running, finished and failed. All times are in seconds."""

    def __init__(self) -> None:
        self.planned: Counter[str] = Counter()
        self.running: dict[int, tuple[str, float]] = {}  # rule and start of each job
        self.failed: dict[int, str] = {}
        self.taken: defaultdict[str, list[float]] = defaultdict(list)
        self.began: float | None = None

    def start(self, job: int, rule: str, now: float) -> None:
        self.began = now if self.began is None else self.began
        self.failed.pop(job, None)
        self.running[job] = (rule, now)

    def finish(self, job: int, now: float) -> float | None:
        """What the job took; None if nobody said that it started."""
        if job not in self.running:
            return None
        rule, started = self.running.pop(job)
        self.taken[rule].append(now - started)
        return now - started

    def fail(self, job: int) -> None:
        if job in self.running:
            self.failed[job] = self.running.pop(job)[0]

    def expected(self, rule: str, now: float) -> float:
        """Of one job: the mean of its rule in this run; for a rule without finished jobs, its weight times what this
        run takes per weight, and not less than those that run have already taken."""
        if self.taken[rule]:
            return mean(self.taken[rule])
        weights = sum(weight(other) * len(taken) for other, taken in self.taken.items())
        so_far = [now - started for name, started in self.running.values() if name == rule]
        return max([weight(rule) * self.finished() / weights, *so_far])

    def finished(self) -> float:
        return sum(sum(taken) for taken in self.taken.values())

    def to_do(self, now: float) -> dict[str, float]:
        """By rule, what its jobs will still take. A failed job counts as nothing, unless it is started again; jobs that
        wait for it still count."""
        begun = Counter(rule for rule, _ in self.running.values()) + Counter(self.failed.values())
        begun += Counter({rule: len(taken) for rule, taken in self.taken.items()})
        seconds = {rule: count * self.expected(rule, now) for rule, count in (self.planned - begun).items()}
        for rule, started in self.running.values():
            seconds[rule] = seconds.get(rule, 0) + max(self.expected(rule, now) - (now - started), 0)
        return seconds

    def left(self, now: float) -> float | None:
        """Seconds until the end if jobs go on side by side as they have so far; None while too little is known.

        The only job of its rule counts as running alone: most of those are the end of the chain, from the tables to the
        report.
        """
        if self.began is None or not self.finished():
            return None
        done = self.finished() + sum(now - started for _, started in self.running.values())
        to_do = self.to_do(now)
        if done < SHARE_TO_SEE * (done + sum(to_do.values())):
            return None
        side_by_side = done / (now - self.began)
        alone = sum(seconds for rule, seconds in to_do.items() if self.planned[rule] <= 1)
        return alone + (sum(to_do.values()) - alone) / side_by_side


def duration(seconds: float) -> str:
    """What a job took: `12 s`, `1 min 45 s`, `2 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def rough(seconds: float) -> str:
    """A guess, without digits that it does not have: minutes, from ten of them on five minutes, then half hours."""
    minutes = seconds / 60
    if minutes < 0.75:
        return "less than a minute"
    if minutes < 10:
        return f"about {max(round(minutes), 1)} min"
    if minutes < 60:
        return f"about {5 * round(minutes / 5)} min"
    return f"about {round(minutes / 30) / 2:g} h"
