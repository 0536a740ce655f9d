"""Statements and questions in eight languages, put together from parts: as many distinct ones as are wanted."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Language:
    """Parts of statements (`subjects`, `verbs`, `objects`, `closings`) and questions that hold one object."""

    subjects: tuple[str, ...]
    verbs: tuple[str, ...]
    objects: tuple[str, ...]
    closings: tuple[str, ...]
    questions: tuple[str, ...]
    space: str = " "
    end: str = "."


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("|"))


LANGUAGES: Final = (
    Language(
        _parts(
            "The user|Mara|Her brother Tom|The backend team|Their landlord|Kenji|A colleague from sales|Grandmother"
            "|The twins|Our accountant|Doctor Okafor|The neighbour upstairs|Professor Lindqvist|The new intern"
        ),
        _parts(
            "prefers|decided on|no longer likes|is allergic to|keeps asking about|pays monthly for|wrote a report on"
            "|sold|is learning about|has to renew|recommended|is worried about|photographed|cancelled"
        ),
        _parts(
            "green tea without sugar|the blue flat in Porto|Postgres with logical replication|walnuts and hazelnuts"
            "|the Tuesday planning meeting|a night train to Vienna|modal jazz from the sixties|the allotment garden"
            "|a standing desk made of oak|unit tests for the parser|knee surgery|the passport|Norwegian grammar"
            "|a folding bicycle|sourdough bread|the car insurance|a telescope for the balcony|chess openings"
            "|noise-cancelling headphones|the mortgage at a fixed rate|hiking boots|the deployment on Kubernetes"
            "|an electric guitar|vegan cheese|the tax declaration|swimming lessons|a second monitor"
        ),
        _parts(
            "since the move|because of the price|after a long talk on the phone|until the end of March"
            "|as the doctor advised|for the second time this year|although nobody else agrees|before the holidays"
            "|and will tell the others on Friday|while working from Lisbon|to save time|despite the noise"
        ),
        ("what about {}?", "who has something to do with {}", "does anybody still want {}", "when was {} mentioned"),
    ),
    Language(
        _parts(
            "Der Nutzer|Mara|Ihr Bruder Tom|Das Team|Der Vermieter|Kenji|Eine Kollegin|Die Großmutter|Der Nachbar"
            "|Unsere Steuerberaterin|Der Praktikant"
        ),
        _parts(
            "mag|entschied sich für|will nichts mehr wissen von|fragt oft nach|bezahlt monatlich für|sucht nach"
            "|empfiehlt allen|sorgt sich wegen|träumt von|spricht gern über"
        ),
        _parts(
            "grünem Tee ohne Zucker|der blauen Wohnung in Porto|einer Datenbank mit Replikation|Walnüssen"
            "|der Besprechung am Dienstag|dem Nachtzug nach Wien|altem Jazz|dem Schrebergarten|einem Schreibtisch"
            "|der Knieoperation|dem Reisepass|norwegischer Grammatik|einem Klapprad|Sauerteigbrot"
            "|der Autoversicherung|einem Fernrohr|Schach|der Hypothek|Wanderschuhen|der Steuererklärung"
        ),
        _parts(
            "seit dem Umzug|wegen des Preises|nach einem langen Gespräch|bis Ende März|auf Rat der Ärztin"
            "|zum zweiten Mal in diesem Jahr|vor den Ferien|obwohl sonst niemand zustimmt"
        ),
        ("wie war das mit {}?", "wer hat etwas zu tun mit {}"),
    ),
    Language(
        _parts("L'utilisateur|Mara|Son frère Tom|L'équipe|Le propriétaire|Kenji|Une collègue|La grand-mère|Le voisin"),
        _parts(
            "préfère|a choisi|n'aime plus|demande souvent|paie chaque mois|cherche|recommande|a vendu|a annulé|oublie"
        ),
        _parts(
            "le thé vert sans sucre|l'appartement bleu à Porto|la base de données|les noix|la réunion du mardi"
            "|le train de nuit pour Vienne|le jazz des années soixante|le jardin ouvrier|un bureau en chêne"
            "|l'opération du genou|le passeport|la grammaire norvégienne|un vélo pliant|le pain au levain"
            "|l'assurance de la voiture|un télescope|les échecs|le prêt à taux fixe|des chaussures de marche"
        ),
        _parts(
            "depuis le déménagement|à cause du prix|après une longue discussion|jusqu'à la fin mars"
            "|sur l'avis du médecin|pour la deuxième fois|avant les vacances|malgré le bruit"
        ),
        ("qu'est-ce qu'on a dit sur {} ?", "qui s'occupe de {}"),
    ),
    Language(
        _parts("El usuario|Mara|Su hermano Tom|El equipo|La casera|Kenji|Una compañera|La abuela|El vecino|El becario"),
        _parts("prefiere|eligió|ya no quiere|pregunta mucho por|paga cada mes|busca|recomienda|vendió|canceló|olvida"),
        _parts(
            "té verde sin azúcar|el piso azul en Oporto|la base de datos|las nueces|la reunión del martes"
            "|el tren nocturno a Viena|el jazz modal|el huerto|un escritorio de roble|la operación de rodilla"
            "|el pasaporte|la gramática noruega|una bicicleta plegable|el pan de masa madre|el seguro del coche"
            "|un telescopio|el ajedrez|la hipoteca|unas botas de montaña|la declaración de la renta"
        ),
        _parts(
            "desde la mudanza|por el precio|después de hablar mucho|hasta finales de marzo|por consejo médico"
            "|por segunda vez este año|antes de las vacaciones|a pesar del ruido"
        ),
        ("¿qué pasa con {}?", "quién sabe algo de {}"),
    ),
    Language(
        _parts("المستخدم|مارا|أخوها توم|الفريق|صاحب البيت|كينجي|زميلة من المبيعات|الجدة|الجار|المتدرب الجديد"),
        _parts("يفضل|اختار|لم يعد يحب|يسأل كثيرا عن|يدفع شهريا مقابل|يبحث عن|أوصى بـ|باع|ألغى|نسي"),
        _parts(
            "الشاي الأخضر بلا سكر|الشقة الزرقاء في بورتو|قاعدة البيانات|الجوز|اجتماع الثلاثاء|قطار الليل إلى فيينا"
            "|موسيقى الجاز|الحديقة|مكتب من خشب البلوط|عملية الركبة|جواز السفر|قواعد اللغة النرويجية|دراجة قابلة للطي"
            "|خبز العجين المخمر|تأمين السيارة|التلسكوب|الشطرنج|القرض العقاري|أحذية المشي|الإقرار الضريبي"
        ),
        _parts("منذ الانتقال|بسبب السعر|بعد حديث طويل|حتى نهاية مارس|بنصيحة الطبيب|للمرة الثانية هذا العام|قبل العطلة"),
        ("ماذا قيل عن {}؟", "من يعرف شيئا عن {}"),
    ),
    Language(
        _parts("用户|玛拉|她的哥哥汤姆|后端团队|房东|健二|销售部的同事|奶奶|楼上的邻居|新来的实习生|会计"),
        _parts("更喜欢|决定选择|不再喜欢|经常问起|每月支付|正在寻找|推荐了|卖掉了|取消了|忘记了|担心"),
        _parts(
            "不加糖的绿茶|波尔图的蓝色公寓|支持复制的数据库|核桃|星期二的会议|去维也纳的夜车|六十年代的爵士乐|小花园"
            "|橡木书桌|膝盖手术|护照|挪威语语法|折叠自行车|酸面包|汽车保险|天文望远镜|国际象棋|固定利率的贷款|登山鞋|报税"
        ),
        _parts("自从搬家以后|因为价格|在长谈之后|直到三月底|按照医生的建议|今年第二次|在假期之前|尽管别人不同意"),
        ("{}怎么样了？", "谁提到过{}"),
        space="",
        end="。",
    ),
    Language(
        _parts("ユーザー|マーラ|兄のトム|開発チーム|大家さん|健二|営業の同僚|祖母|上の階の隣人|新しいインターン"),
        _parts(
            "は今も好む：|が選んだのは|がやめたのは|がよく尋ねるのは|が毎月払うのは|が探すのは|が勧めたのは|が売ったのは"
        ),
        _parts(
            "砂糖なしの緑茶|ポルトの青い部屋|複製できるデータベース|くるみ|火曜日の会議|ウィーン行きの夜行列車"
            "|六十年代のジャズ|小さな菜園|樫の机|膝の手術|パスポート|ノルウェー語の文法|折りたたみ自転車|天然酵母のパン"
            "|自動車保険|天体望遠鏡|チェス|固定金利のローン|登山靴|確定申告"
        ),
        _parts(
            "、引っ越してから|、値段のせいで|、長く話した後で|、三月末まで|、医者の勧めで|、今年二度目|、休みの前に"
        ),
        ("{}はどうなりましたか", "{}について話したのは誰"),
        space="",
        end="。",
    ),
    Language(
        _parts("ผู้ใช้|มารา|พี่ชายชื่อทอม|ทีมพัฒนา|เจ้าของบ้าน|เคนจิ|เพื่อนร่วมงานฝ่ายขาย|คุณยาย|เพื่อนบ้าน|นักศึกษาฝึกงาน"),
        _parts("ชอบ|ตัดสินใจเลือก|ไม่ชอบแล้ว|ถามบ่อยเรื่อง|จ่ายเงินทุกเดือนให้|กำลังหา|แนะนำ|ขาย|ยกเลิก|ลืม"),
        _parts(
            "ชาเขียวไม่ใส่น้ำตาล|ห้องสีฟ้าในปอร์โต|ฐานข้อมูล|วอลนัท|การประชุมวันอังคาร|รถไฟกลางคืนไปเวียนนา|ดนตรีแจ๊ส"
            "|สวนเล็ก|โต๊ะไม้โอ๊ค|การผ่าตัดเข่า|หนังสือเดินทาง|ไวยากรณ์นอร์เวย์|จักรยานพับ|ขนมปัง|ประกันรถยนต์|กล้องดูดาว"
            "|หมากรุก|เงินกู้บ้าน|รองเท้าเดินป่า|การยื่นภาษี"
        ),
        _parts("ตั้งแต่ย้ายบ้าน|เพราะราคา|หลังจากคุยกันนาน|จนถึงสิ้นเดือนมีนาคม|ตามคำแนะนำของหมอ|เป็นครั้งที่สองของปี|ก่อนวันหยุด"),
        ("{}เป็นอย่างไรบ้าง", "ใครพูดถึง{}"),
        space="",
        end="",
    ),
)


def statements(count: int, seed: int) -> list[str]:
    """Distinct statements, half of them English, the others in turn; always the same of one seed."""
    draw = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        language = LANGUAGES[0] if draw.random() < 0.5 else draw.choice(LANGUAGES[1:])
        chosen = [
            draw.choice(part) for part in (language.subjects, language.verbs, language.objects, language.closings)
        ]
        found[language.space.join(chosen) + language.end] = None
    return list(found)


def questions(count: int, seed: int) -> list[str]:
    """What is asked, languages in turn."""
    draw = random.Random(seed)
    return [
        draw.choice(language.questions).format(draw.choice(language.objects))
        for language in (LANGUAGES[number % len(LANGUAGES)] for number in range(count))
    ]
