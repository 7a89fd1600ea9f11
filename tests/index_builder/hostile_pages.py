"""Pages by grammar that are made to be slow to parse: a page's pattern and form follow from its number."""

import random

__all__ = ["hostile_page"]

MARKDOWN = (
    "<!--\n", "![", "| a | b |\n|---|---|\n", "[a", "<![CDATA[", "[a](", "<", "title: a" + " " * 50, "*a ", "**", "`", "``` ",
    "> ", "- ", "1. ", "  - a\n", "[a]: b\n", "&", "&#", "\\", "~~", "_a_", "<a ", "<a b='", "<?", "<!A ", "](", "[](<",
    '![a](b "', "\t", "# ", "===\n", "a\n---\n", "***", "```\n", "|", "| |\n", "[[", "]]", "!", "<x@y", "http://a ", "\0", "a  \n",
)  # fmt: skip
HTML = (
    "<div>", "<p>", "<table><tr><td>", "<b>", "<a href='", "<a>", "<!--", "<![CDATA[", "<script>", "<style>", "<h1>", "<h2>a</h2>",
    "<li>", "<ul><li>", "</div>", "</p>", "&", "&#", "<svg>", "<math>", "<template>", "<select><option>", "<form><input>", "<font>",
    "<time datetime='2020-01-01'>", "<meta name='a' content='b'>", "<title>", "<nav>", "<br>", "<q>", "<blockquote>",
    "<p class='post'>a", "<span>a</span>", "<td>", "<iframe>", "<base>", "<head>", "<body>", "<em><strong>", "<x-y>",
    "<p>2020-01-01 ", "<script type='application/ld+json'>[", "| ", "<pre>",
)  # fmt: skip


def hostile_page(number: int, size_bytes: int) -> tuple[str, bytes]:
    """A name and so many bytes.

    Args:
        number: even ones are Markdown, odd ones HTML; small ones repeat one pattern, larger ones a mixture.
        size_bytes: of the page.
    """
    chance = random.Random(number)  # noqa: S311 - pages that can be made again
    patterns, kind = (HTML, "html") if number % 2 else (MARKDOWN, "md")
    mixture = "".join(chance.choice(patterns) for _ in range(chance.randint(1, 6)))
    unit = patterns[number // 2] if number // 2 < len(patterns) else mixture
    count = size_bytes // len(unit) + 1
    text = (
        unit * count,
        f"---\n{unit * count}\n---\n# a",
        (unit * 200 + "\n") * (count // 200 + 1),
        f"# a\n\n{unit * (count // 2)}b{unit * (count // 2)}",
    )[chance.randrange(4)]
    return f"page-{number}.{kind}", text.encode()[:size_bytes]
