"""Function words that a query may do without, of the query's own language only.

The lists stay short, and leave out what is a word of substance in English (war, die, want, son, car): a wrong guess
must not delete what was asked for. For the same reason nobody joins them.
"""

from __future__ import annotations

from collections.abc import Iterable

from memory.folding import fold

_ENGLISH = "en"

_LISTS = {
    _ENGLISH: """
        a about am an and any are as at be been being but by can could did didn do does doesn doing don for from had
        has have having he her hers him his how i if in into is isn it its me my of on or our she should so some
        such than that the their them then there these they this those to was wasn we were what when where which
        while who whom whose why will with would you your s t ve ll re""",
    "de": """
        aber als auch auf aus bei bis das dass dein dem der des du durch ein eine einem einen einer er es haben
        hatte ich ihr im ist kann mein mit nach nicht oder sein sich sie sind und um vom von wann warum was welche
        welcher welches wer wie wir wird wo wurde zu zum zur""",
    "fr": """
        au aux avec ce ces cette dans de des donc du elle elles est et il ils j je l la le les leur ma mais mes ne
        nous ont où pas pourquoi qu quand que quel quelle quelles quels qui quoi sa se ses sont tu un une vous était
        été""",
    "es": """
        como cual cuando cuanto cuantos cuál cuándo cuánto cuántos de del donde dónde el ella ellos en es esta
        este esto fue la las le lo los me mi mis muy más no para pero por porque que quien quién qué se su sus tu un
        una y""",
    "it": """
        al alla alle anche che chi cosa da dal dalla dei del della delle di dove gli ha hanno ho il in la le lo mi
        nel nella non perché più quale quali quando quello questa questo sono su sua sul sulla suo un una uno""",
    "pt": """
        ao aos como da das de do e ela elas ele eles em esta este eu foi isso meu minha muito na nas não no nos o
        onde os para por porque qual quando que quem se seu sua também um uma você""",
    "nl": """
        aan als bij dat de deze dit een en er het heeft hebben hij hoe ik is je jij jullie maar met mijn naar niet
        om ook op te uit van voor waar waarom wanneer wat werd wie wij worden wordt ze zij zijn""",
    "sv": """
        att av blev de det detta denna du då eller en ett från hade har hon hur i inte jag med när och också om
        skulle som vad varför vem vi""",
    "tr": """
        ama bir bu çok çünkü da daha de değil gibi hangi her için ile kadar ki mi mu mı nasıl ne neden nerede
        oldu olan olarak onlar onun siz ve veya şey""",
    "ru": """
        а бы был была были было быть в вас во вот все вы где да для до его ее если ещё же за и из или им их к как
        какая какие какое какой когда кто ли меня мне мой моя мы на не нет но о об он она они от по под почему при с
        свой со так то только ты у уже что чтобы чьи чья это я""",
    "ar": """
        أن أنا أنت أو أين إلى إن التي الذي الذين بعد بين تلك ثم حتى ذلك عن على في قبل قد كان كانت كل كم كيف لا لم
        لماذا لن ما ماذا متى مع من نحن هذا هذه هل هم هو هي و يكون""",
    "hi": """
        आप इस उस उसका उसकी एक और कब कर कहाँ का कि कितना कितनी कितने किस की के कैसे को कौन क्या क्यों गई गया जो तुम
        तो था थी थे ने नहीं पर भी मेरा मेरी में मैं या यह ये रहा रही लिए वह वे साथ से हम ही है हैं हो""",
    # Characters: a pair that holds one still counts.
    "zh": "的 了 吗 呢 吧 啊 是 在 我 你 他 她 它 们 这 那 有 不 也 都 就 与 和 被 什 么 哪 谁",
}

STOP_WORDS = {language: frozenset(fold(words).split()) for language, words in _LISTS.items()}
"""By language; folded."""


def stop_words_for(words: Iterable[str]) -> frozenset[str]:
    """Give the stop words of the language that these folded words share most with; English when unsure.

    One shared word proves nothing in Latin letters: `mit` is a university too.
    """
    present = frozenset(words)
    shared = {language: present & stop_words for language, stop_words in STOP_WORDS.items()}
    most = max(map(len, shared.values()))
    leaders = [language for language, found in shared.items() if len(found) == most]
    sure = len(leaders) == 1 and (most > 1 or not next(iter(shared[leaders[0]])).isascii())
    return STOP_WORDS[leaders[0] if sure else _ENGLISH]
