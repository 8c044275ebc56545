"""How the numbers were made: the paragraphs that a reader needs to trust a table, and that a paper can take over."""

from __future__ import annotations

from mlm_lab.report.analysis import LEVEL
from mlm_lab.report.document import Block, Heading, Paragraph
from mlm_lab.report.study import Study

PERCENT = f"{LEVEL:.0%}".replace("%", " %")

_INTERVALS = (
    "Error bars are over pretraining seeds: mean, standard deviation (n - 1) and median of each arm, and Student's t interval at "
    f"{PERCENT}. "
    "Arms are compared with the baseline by randomised blocks, a seed being a block; arms whose spread is that between seeds share one "
    "estimate of it. The simultaneous interval of a difference holds for all arms of the metric at once (Dunnett). The primary contrast, "
    "named before the runs, is tested uncorrected; all others of a metric by Holm. Words follow p, and at the edge the simultaneous "
    "interval may say otherwise. Each metric is a family of its own: over several metrics nothing is corrected, which is why one is "
    "primary."
)
_WORDS = (
    "The words: better or worse, where the difference is told from zero; equivalent within d, where two one-sided tests show it smaller "
    "than the margin d, which goes before the other two; not resolved, where neither is shown, with the difference that so many seeds "
    "would have shown in four cases of five."
)
_EVERY_RUN = (
    "A permutation p is given where the number of seeds lets it reach the level (from 6). Every finished run counts, on the plateau or "
    "collapsed too; an arm with such runs is never called better, and its spread stays out of the pool. Failed runs have no number and are "
    "listed. Where runs or fine-tunings failed by themselves (their loss was not finite, or nobody knows why), those that came through "
    "are a selection on the outcome: such an arm is likewise never called better or equivalent. Those that something outside ended (a "
    "full disk, memory) are missing, and say nothing of the arm."
)
_AVERAGES = (
    "GLUE averages are named: nine_columns (BERT's: MNLI matched and mismatched apart, without WNLI), eight_tasks (ELECTRA's: MNLI matched "
    "alone, without WNLI), official (the leaderboard's nine tasks, the metrics of a task averaged first)."
)
_FLOOR = "Floor: the same encoder from random weights, measured likewise at its own learning rate, over its initialisations."


def methods(study: Study) -> list[Block]:
    """The section. It says what applies to this study and nothing else."""
    declared, metrics = study.declaration, study.common.metrics
    sentences = [_WORDS]
    if declared.margin is not None:
        sentences.append(
            f"The margin, {declared.margin:g} in the primary metric's unit and for it alone, was stated in {named_source(declared.source)}."
        )
    if declared.tune is not None and declared.contrast is not None:
        sentences.append(
            f"The study tunes `{declared.tune.key}`, so its primary contrast is the one with each arm at its own value, and that alone is "
            "tested uncorrected; the same contrast at the common value is secondary, and by Holm with the other arms of its table."
        )
    if declared.ordered:
        sentences.append(
            "The arms have an order, so a trend is tested by ranks within each seed (Page, uncorrected); scores that rise and fall again "
            "may have one."
        )
    if declared.pilot_seeds:
        seeds = ", ".join(map(str, declared.pilot_seeds))
        sentences.append(f"Runs with the seeds {seeds} chose what is tested: they stand in the tables, and in no test.")
    sentences.append(_EVERY_RUN)
    if any(result.column.metric.startswith("glue/") for result in metrics):
        sentences.append(_AVERAGES)
    if any(result.floors for result in metrics):
        sentences.append(_FLOOR)
    return [Heading("Methods"), Paragraph(_INTERVALS), Paragraph(" ".join(sentences))]


def named_source(source: str) -> str:
    """Where the study was declared: a file as code, "the command line" as it is."""
    return f"`{source}`" if "/" in source else source
