"""What stands around each page of the dashboard, and where its pages are."""

from collections.abc import Sequence
from urllib.parse import quote, urlencode

from hlotune.tuning_logs.evidence import KernelEvidence
from hlotune.tuning_logs.page.markup import Child, tag
from hlotune.tuning_logs.page.parts import Places

RUNS, KERNELS, COMPARE = "/", "/kernels", "/compare"


def run_address(source: int, run: str) -> str:
    return f"/runs/{source}/{quote(run, safe='')}"


def kernel_address(source: int, run: str, key: str) -> str:
    return f"{run_address(source, run)}/kernels/{quote(key, safe='')}"


def replay_address(source: int, run: str, key: str | None = None) -> str:
    more = f"?{urlencode({'kernel': key})}" if key else ""
    return f"{run_address(source, run)}/replay{more}"


def places(source: int, run: str) -> Places:
    """The pages of a run, for the links of its report."""

    def of(kernel: KernelEvidence) -> str:
        return kernel_address(source, run, kernel.report.key)

    return Places(run_address(source, run), of)


def shell(
    *, title: str, about: str, live: Child, controls: Child = None, ways: Sequence[Child] = (),
    is_live: bool = True,
) -> str:  # fmt: skip
    """A page.

    Args:
        about: the line below the heading.
        live: what is fetched again while the page is open.
        controls: what stands above it and stays.
        ways: links beside those to the lists.
        is_live: whether it is fetched again by itself.
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", f"{title} (hlotune dashboard)"),
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href="/style.css"),
        tag("script", src="/dashboard.js", defer=True),
    )
    top = tag(
        "header",
        tag("a", "To the page", href="#main", class_="skip"),
        tag("nav", tag("a", "Runs", href=RUNS), tag("a", "Kernels", href=KERNELS), *ways,
            class_="pages", aria_label="Dashboard"),
        tag("h1", title),
        tag("p", about, class_="muted"),
        class_="top",
    )  # fmt: skip
    main = tag(
        "main",
        controls,
        tag("div", live, id="live", data_live="yes" if is_live else "no"),
        id="main",
    )
    end = tag(
        "footer",
        tag("p", "", id="status", role="status"),
        tag("p", "Made by hlotune from the records of its databases, which it only reads."),
    )
    body = tag("body", top, main, end)
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"
