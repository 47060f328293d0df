"""The three layers of the card, its pictures against their captions, contrast, and the forms it is exported to."""

import contextlib
import copy
import json
import math
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from rich.console import Console

import tacit.reports
from tacit.accounting import Account, account
from tacit.attacks import Scores
from tacit.audit import audit_scores
from tacit.cli import main
from tacit.errors import InvalidInput
from tacit.relation import Relation
from tacit.reports import account_table, card_markdown, card_table
from tacit.reports.plots import enters, observed, said_of_figures
from tacit.standing import Standing
from tacit.statement.schema import faults, schema_of
from tacit.tradeoff import GaussianCurve, TradeOff
from tests.reports.test_card import a_card, a_ledger, audit, html_of, result

CSS = Path(tacit.reports.__file__).parent / "templates" / "card.css.j2"


def claim(mu):
    return TradeOff(GaussianCurve(mu), Standing.PROVEN, Relation.ADD_REMOVE, "exact")


@pytest.mark.parametrize("non_members", [11, 541])
def test_the_curve_of_an_attack_ends_at_one_false_alarm_and_one_missed_member(non_members):
    draw = np.random.default_rng(1)
    scores = Scores("loss", np.append(draw.normal(0, 1, 700), [9.0, 9.0, 9.0]), draw.normal(0, 1, non_members), 0.0)
    found = audit_scores(scores, delta=1e-5)
    fpr, fnr = observed(found)
    assert fpr.min() >= 1 / non_members - 1e-12
    assert fnr.min() >= 1 / 703 - 1e-12
    # Three members above every non-member are one in 230 found at a rate that nothing resolves: below it is no line.
    assert non_members < 100 or not enters(found, claim(1.0))[0]


def test_the_caption_says_where_a_line_or_a_band_is_inside_the_shaded_region():
    outside, inside = audit(0.0), audit(3.0)
    assert "No line reaches into" in said_of_figures([claim(2.0)], [outside])
    told = said_of_figures([claim(0.5)], [inside])
    assert "reaches into the shaded region: that refutes" in told
    assert "No line" not in told
    assert "shaded" not in said_of_figures([], [])


def test_an_attack_that_separates_all_records_has_a_band_and_no_line():
    found = audit_scores(Scores("loss", np.arange(50.0) + 50, np.arange(50.0), 50.0), delta=1e-5)
    assert len(observed(found)[0]) == 0
    assert enters(found, claim(0.1)) == (False, True)


def test_one_number_comes_first_then_four_facts_and_all_else_is_folded(tmp_path):
    html = html_of(tmp_path)
    first = html.index("<details>")
    assert html.count('class="number"') == 1
    assert html.index('class="number"') < html.index('class="figures"') < html.index('class="facts"') < first
    assert html.count('class="fact"') == 4
    assert not re.search(r"<table", html[:first])
    assert html.count("<details>") == html.count("</details>")


def test_the_first_page_files_the_release_and_states_delta_and_how_often(tmp_path):
    html = html_of(tmp_path, about={"owner": "Clinic & Sons", "unit": "one patient", "date": "2026-02-03"})
    first = html[: html.index("<details>")]
    headline = first[first.index('<section class="headline') : first.index("</section>")]
    assert "at δ = 1e-05, for one record (one patient), released once" in headline
    for heading, told in (("Owner", "Clinic &amp; Sons"), ("Date", "2026-02-03"), ("Data version", "not stated")):
        assert re.search(rf"<dt>{heading}</dt><dd[^>]*>{told}</dd>", first)
    assert "for one person's record, released once" in html_of(tmp_path).replace("&#39;", "'")
    text = card_markdown(card_table(a_card(about={"owner": "Clinic"})))
    assert "Owner: Clinic" in text
    assert "Purpose: not stated" in text


def test_accountants_that_say_nothing_are_folded_away_from_those_that_do(tmp_path):
    ledger = a_ledger()
    html = html_of(tmp_path, ledger=ledger, account=account(ledger, delta=1e-5))
    informative = html[html.index("Bounds that say something") : html.index("Other accountants")]
    assert "pld" in informative
    assert not {"clt", "naive"} & set(re.findall(r'data-label="Accountant">(\w+)<', informative))
    assert "clt" in html[html.index("Other accountants") :]


@pytest.mark.parametrize("standing", [Standing.ASYMPTOTIC, Standing.CLAIMED])
def test_what_is_not_proven_has_no_number_in_the_headline(tmp_path, standing):
    html = html_of(tmp_path, account=Account((result(0.5, standing),), ()))
    assert 'class="number"' not in html


def brightness(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_text_has_a_contrast_of_four_and_a_half_in_both_themes():
    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part)) for part in CSS.read_text().split("@media", 2)[:2]]
    assert all(len(theme) >= 14 for theme in themes)
    for theme in themes:
        for name in ("ink", "soft", *(standing.value for standing in Standing)):
            for ground in ("paper", "sheet", "tint"):
                low, high = sorted(brightness(theme[each]) for each in (name, ground))
                assert (high + 0.05) / (low + 0.05) >= 4.5, (name, ground)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_tables_of_the_terminal_fold_and_cut_nothing(width):
    console = Console(width=width, record=True, force_terminal=False)
    console.print(account_table(account(a_ledger(), delta=1e-5), a_ledger()))
    text = console.export_text()
    assert "…" not in text


def test_the_export_names_the_guarantee_and_its_standing():
    table = card_table(a_card())
    text = card_markdown(table)
    for needed in ("proven", "by exact", "## Four facts", "## Not covered", "adding or removing one record"):
        assert needed in text
    unproven = card_table(a_card(account=Account((result(0.5, Standing.CLAIMED),), ())))
    assert "≈" in card_markdown(unproven)
    assert "None." in card_markdown(card_table(a_card(account=Account((), ()), audits=())))


def test_text_of_a_received_card_is_no_markup():
    text = card_markdown(card_table(a_card(dataset="<script>x</script> | `y` [z](http://a)")))
    assert "<script" not in text
    assert "[z](" not in text.replace("\\[", "")


@pytest.mark.parametrize(
    "change",
    [
        *({name: None} for name in ("guarantees", "audits", "mechanisms", "metrics", "unsafe")),
        *({"guarantees": rows} for rows in ([1], [{}], [{"accountant": "pld", "standing": "sure"}])),
        {"audits": [{"attack": "x"}]},
        {"metrics": {"test": "much"}},
        {"facts": [{"id": "unit", "how": "hoped"}]},
    ],
)
def test_tables_that_are_no_card_are_refused(change):
    with pytest.raises(InvalidInput, match=r"must be"):
        card_markdown(card_table(a_card()) | change)


def test_the_schema_of_a_card_knows_every_standing_and_is_read_as_a_library_reads_it():
    schema = schema_of("tacit.reports", "card.schema.json")
    known = schema["properties"]["guarantees"]["items"]["properties"]["standing"]["enum"]
    assert known == [*(standing.value for standing in Standing), "stated", "consistent"]
    library = jsonschema.Draft202012Validator(schema)
    card = json.loads(json.dumps(card_table(a_card())))
    number = {"oneOf": [{"type": "number", "maximum": 1.7976931348623157e308}, {"enum": ["inf", None]}]}
    assert schema["properties"]["metrics"]["additionalProperties"] == number
    for change in ({}, {"metrics": {"test": True}}, {"checked": {"verdict": "sure"}}, {"about": {"facts": "x"}}):
        assert library.is_valid(card | change) == (not any(faults(card | change, schema))) == (not change)


def places(value, place=()):
    yield place
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*place, key))


@pytest.mark.parametrize("hostile", ["inf", -1, 10**400, math.nan, None, True, "", [], {}, [1], {"a": 1}])
def test_a_card_with_any_value_changed_is_read_or_refused(hostile):
    card = json.loads(json.dumps(card_table(a_card(about={"owner": "Clinic", "facts": ["240 rows"]}))))
    for *path, last in filter(None, places(card)):
        changed = copy.deepcopy(card)
        inner = changed
        for key in path:
            inner = inner[key]
        inner[last] = hostile
        with contextlib.suppress(InvalidInput):
            card_markdown(changed)


def test_the_command_says_where_nobody_vouches_for_a_card(tmp_path, capsys):
    ledger = a_ledger()
    card = a_card(ledger=ledger, account=account(ledger, delta=1e-5, accountants=["pld"]))
    (tmp_path / "card.json").write_text(json.dumps(card_table(card)))
    assert main(["card", str(tmp_path)]) == 0
    assert "This card is not signed" in capsys.readouterr().out
    assert main(["card", str(tmp_path), "--out", str(tmp_path / "c.txt")]) == 2
    assert ".md" in capsys.readouterr().err
    assert main(["card", str(tmp_path / "none")]) == 2


def test_a_wrong_ending_of_a_plot_is_refused_before_the_computation(capsys, monkeypatch):
    monkeypatch.setattr("tacit.accounting.account", lambda *_, **__: pytest.fail("computed first"))
    assert main(["account", "--noise-multiplier", "1", "--plot", "a.svgg"]) == 2
    assert "ending of the plot file" in capsys.readouterr().err
