"""Short texts in old encodings."""

import pytest

from mem_agent.data.guessed_encoding import guessed

SHORT = {
    "cp1252": ["He said “yes” – it’s €5.", "Müller kaufte Äpfel.", "L’été à la plage, c’était génial…",
               "Königsstraße 5", "El niño comió – ¿verdad?", "São Paulo não é a capital.", "Åsa går på gatan.",
               "Price: £5, 20 m² at 20°C", "• first\n• second", "Name;City\nZoë;Besançon\n", "© 2020 Ann Smith"],
    "cp1251": ["Анна имеет золото, а Бен имеет серебро."],
    "cp1250": ["Zażółć gęślą jaźń", "On rzekł: „tak” – i poszedł", "Łódź jest duża", "Příliš žluťoučký kůň"],
    "cp866": ["Привет, мир"], "big5": ["金屬是銀", "臺北"], "shift_jis": ["彼女の金属は銀です"],
    "cp1253": ["Καλημέρα κόσμε"],
}


@pytest.mark.parametrize(("encoding", "text"), [(encoding, text) for encoding in SHORT for text in SHORT[encoding]])
def test_a_short_text_is_read_as_it_was_written(encoding, text):
    found = guessed(text.encode(encoding))
    assert found is not None and found[0] == text


def test_a_long_text_is_counted():
    german = "Die Straße führt über die Brücke nach Köln, wo die Märkte für Öl lagen. " * 9
    assert guessed(german.encode("cp1252"))[0] == german and guessed(german.encode("cp850"))[0] == german
