"""A case study of attention as a Markdown table and as a picture, after GLOW's Table 4."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from glow.errors import ConfigError, InputError
from research.attention.studied import StudiedModel
from research.attention.study import TOP, Rows, Score, StudiedText

__all__ = ["MAX_PANELS", "draw_study", "study_markdown"]

MAX_PANELS = 50
"""Most texts of a picture; more would be illegible, and the height is limited to 65,535 pixels."""
TITLE_CHARACTERS = 70
_CAPTIONS = {
    "cls": "Attention from [CLS] in the last layer, mean over heads",
    "all": "Attention from all tokens in the last layer, mean over heads and tokens",
    "states": "Mean inner product of a token's last hidden state with the other tokens'",
}


def study_markdown(texts: Sequence[StudiedText], models: Sequence[StudiedModel], rows: Rows) -> str:
    """A table of texts x models, and a summary for each model.

    Args:
        texts: at least one, measured with every model.
        models: in column order.
        rows: the kind of scores.
    """
    head = ["document", f"BM25F: heaviest {TOP}", *(_plain(model.name) for model in models)]
    lines = [_row(head), _row(["---"] * len(head))]
    for text in texts:
        heavy = {item.word for item in text.heaviest}
        cells = [f"{_plain(_short(text.title))} ({_plain(text.id)})", _weights(text.heaviest)]
        cells += [_words(text.models[model.name].words, heavy, rows) for model in models]
        lines.append(_row(cells))
    caption = f"{_plain(_CAPTIONS[rows])}, summed over a word's pieces and places."
    lines += ["", f"{caption} Bold: also among the BM25F words.", ""]
    return "".join(f"{line}\n" for line in [*lines, *(_summary(texts, model, rows) for model in models)])


def draw_study(texts: Sequence[StudiedText], rows: Rows, path: Path) -> None:
    """Writes the picture: one panel per text with a set of bars per model, all on one scale.

    Args:
        texts: 1 to `MAX_PANELS`.
        rows: the kind of scores.
        path: file to write, `.png`.

    Raises:
        ConfigError: if the file is not a `.png`, or there are too many texts.
        InputError: if it cannot be written.
    """
    if path.suffix != ".png":
        raise ConfigError(f"--picture {path.name}: expected a name that ends in .png")
    if len(texts) > MAX_PANELS:
        raise ConfigError(
            f"a picture holds at most {MAX_PANELS} texts, not {len(texts)}: give fewer, or no --picture"
        )
    try:
        _figure(texts, rows).savefig(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def _figure(texts: Sequence[StudiedText], rows: Rows) -> Figure:
    names = list(texts[0].models)
    size = (max(6.0, 3.0 * len(names)), 0.8 + len(texts) * (1.0 + 0.22 * TOP))
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    panels = figure.subfigures(len(texts), 1, squeeze=False)[:, 0]
    for panel, text in zip(panels, texts, strict=True):
        panel.suptitle(f"{_short(text.title)} ({text.id})", fontsize=9, fontweight="bold", parse_math=False)
        heavy = {item.word for item in text.heaviest}
        plots = panel.subplots(1, len(names), squeeze=False, sharex=True)[0]
        for axes, name in zip(plots, names, strict=True):
            _bars(axes, text.models[name].words, heavy, rows)
            axes.set_title(_short(name, 36), fontsize=9, parse_math=False)
    figure.supxlabel(_CAPTIONS[rows] + (", %" if rows != "states" else ""), fontsize=9)
    kinds = {
        "tab:green": f"among the BM25F-heaviest {TOP} (bold)",
        "tab:orange": "not among them",
    }
    figure.legend(
        handles=[Patch(color=color, label=label) for color, label in kinds.items()],
        loc="outside upper center", ncols=2, fontsize=9,
    )  # fmt: skip
    return figure


def _bars(axes: Axes, words: Sequence[Score], heavy: set[str], rows: Rows) -> None:
    factor = 1.0 if rows == "states" else 100.0
    places = range(len(words))
    colors = ["tab:green" if item.word in heavy else "tab:orange" for item in words]
    axes.barh(places, [item.value * factor for item in words], color=colors, height=0.7)
    axes.set_yticks(places, [_short(item.word, 24) for item in words], fontsize=8, parse_math=False)
    for label, item in zip(axes.get_yticklabels(), words, strict=True):
        label.set_fontweight("bold" if item.word in heavy else "normal")
    axes.set_ylim(TOP - 0.5, -0.5)  # the best on top, with space for equally many words everywhere
    axes.tick_params(axis="x", labelsize=8)
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3, axis="x")


def _summary(texts: Sequence[StudiedText], model: StudiedModel, rows: Rows) -> str:
    """One line per model: its agreement with the weights, and the fraction of its attention on words."""
    found = [(text, text.models[model.name]) for text in texts]
    shared = [
        len({item.word for item in text.heaviest} & {item.word for item in it.words}) for text, it in found
    ]
    line = f"- {_plain(model.name)}: on average {_mean(shared):.1f} of its {TOP} words are BM25F's"
    if rows != "states":
        line += f"; {_mean([it.left_out for _, it in found]):.0%} of the attention goes to \\[CLS\\], \\[SEP\\] and punctuation"
    if rows == "cls" and model.towers.config.pooling in ("mean", "weighted"):
        line += "; its vector is a mean of all tokens, \\[CLS\\] being one of them: see also `--rows all`"
    return line + "."


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _words(words: Sequence[Score], heavy: set[str], rows: Rows) -> str:
    shown = []
    for item in words:
        word = f"**{_plain(item.word)}**" if item.word in heavy else _plain(item.word)
        shown.append(f"{word} {item.value:.2f}" if rows == "states" else f"{word} {item.value:.1%}")
    return ", ".join(shown) or "no word"


def _weights(words: Sequence[Score]) -> str:
    return ", ".join(f"{_plain(item.word)} {item.value:.1f}" for item in words) or "no word"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _short(text: str, characters: int = TITLE_CHARACTERS) -> str:
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1].rstrip() + "…"


def _plain(text: str) -> str:
    """Untrusted text as plain words, without effect of its markup or table delimiters."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|~" else letter for letter in " ".join(text.split()))
