"""Short texts in old encodings."""

import pytest

from mem_agent.data.guessed_encoding import guessed

SHORT = {
    "cp1252": ["He said “yes” – it’s €5.", "Müller kaufte Äpfel.", "L’été à la plage, c’était génial…",
               "Königsstraße 5", "El niño comió – ¿verdad?", "São Paulo não é a capital.", "Åsa går på gatan.",
               "Price: £5, 20 m² at 20°C", "• first\n• second", "Name;City\nZoë;Besançon\n", "© 2020 Ann Smith",
               # French
               "Téléphone n°4, entrée à gauche", "N° 5 été", "Voir l’article n° 5 de l’arrêté.", "Comment ça va?",
               "« Où est-il ? » demanda-t-elle.", "L’œuvre de Molière, cœur naïf", "ÉTÉ À PARIS: CONFÉRENCE GÉNÉRALE",
               "½ cup crème fraîche, 200°C, 5µm", "à", "ça",
               # German
               "Er sagte: „Ja, natürlich!“", "‚Zitat‘ für Anfänger", "Anna Schäfer (* 1950; † 2010)", "† und ‡ für Öl",
               "Gefälle: 5 ‰, Größe: 3×4 µm", "MÜLLER GMBH, KÖLN",
               # Spanish, Portuguese, Italian, Catalan, Danish
               "Calle Mayor nº 5, 3º izquierda", "N.º 7 de la sección 2.ª", "él", "mañana: Él dijo “sí”.",
               "coração, limões, pães", "Perché è così? Più città, caffè",
               "la versió és instal·lada", "tertiære knæ, blåbær og rødgrød",
               "rock ’n’ roll, dogs’ bowls, the ’90s", "‘I am’, a—b and “A”"],
    "cp1251": ["Анна имеет золото, а Бен имеет серебро.", "Москва — столица России.", "Война и мир. Том 1",
               "Он сказал: «Да».", "Файл не найден"],
    "cp1250": ["Zażółć gęślą jaźń", "On rzekł: „tak” – i poszedł", "Łódź jest duża", "Příliš žluťoučký kůň",
               "Ala ma kota i psa, bardzo ładnie.", "Dziękuję bardzo", "Wrocław, ul. Świdnicka 5",
               "Bună ziua, mă numesc Ana", "hűvös ősz, erdő és mező"],
    "cp866": ["Привет, мир"], "big5": ["金屬是銀", "臺北", "姓名: 張三"], "cp949": ["안녕하세요 세계", "이름: 김철수"],
    "shift_jis": ["彼女の金属は銀です", "Name: 田中 Age: 30",
                  "Hello 日本", "会議 at 10:00", "5 円",
                  "ファイル.txt", "Mr. Smithは東京に住む。", "Windowsの設定"],
    "gbk": ["你好,世界。这是一个测试。", "A: 中 B: 国", "中国", "姓名：王伟，年龄：30", "价格 5 元",
            "联系电话 010-1234", "PDF文件"],
    "cp1253": ["Καλημέρα κόσμε"],
}


@pytest.mark.parametrize(("encoding", "text"), [(encoding, text) for encoding in SHORT for text in SHORT[encoding]])
def test_a_short_text_is_read_as_it_was_written(encoding, text):
    found = guessed(text.encode(encoding))
    assert found is not None and found[0] == text


def test_a_long_text_is_read_as_well():
    german = "Die Straße führt über die Brücke nach Köln, wo die Märkte für Öl lagen. " * 9
    assert guessed(german.encode("cp1252")) == (german, "windows-1252")


@pytest.mark.parametrize("text", ["la table «%s» n'existe pas", "no se puede abrir «%s»", "«caffè» e «tè»"])
def test_marks_of_quotations_are_no_letters(text):
    assert guessed(text.encode("cp1252")) == (text, "windows-1252")


def test_what_is_no_text_in_it_has_none():
    assert guessed("Köln \x81".encode("latin-1") * 9) is None
