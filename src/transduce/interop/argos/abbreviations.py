"""Abbreviations whose full stop does not end a sentence, for the larger languages.

Listed are those that are hardly ever the last word of a sentence, and no words themselves; "etc." and "usw." are not.
Single letters, as in "z. B." and "J. S. Bach", need no list. A hyphen in front says that it may be the end of a longer
word, as in "Goethestr. 5".
"""

_ALWAYS = {
    "cs": "bc cca dr ing mgr mudr např phdr prof resp rndr st sv tj tzv ul",
    "da": "bl ca cand dr dvs eks f.eks fr hr jf kgl ltd maks mht pga prof skt vedr",
    "de": "bspw bzw ca dipl dr evtl exkl fa fr geb gegr gest ggf hl hr hrsg ing inkl jr kath mag mio mrd nr prof sog "
    "st std tel vgl zzgl",
    "el": "αγ βλ δρ καθ",
    "en": "approx capt cf col dept dr est fr gen gov hon lt maj messrs mr mrs ms msgr mt pres prof rep rev sen sgt st "
    "supt vs viz",
    "es": "aprox av avda dr dra dña ee ej ing lic prof profa sr sra sres sras srta tel ud uds vd vds",
    "fi": "dipl esim fil huom ks mm mr ns os prof puh rva st synt toim tri ts vrt",
    "fr": "apr av bd bld cf dr drs env ex me mgr mlle mlles mm mme mmes mr p.ex prof st ste tél",
    "hi": "डॉ प्रो",
    "hu": "dr ifj ill kb ld özv prof stb szt tel ui ún",
    "it": "avv arch dott dott.ssa dr gen geom ing mons on prof sen sig sigg sigra tel",
    "nb": "bl ca cand dr dvs eks evt f.eks fr frk hr iht inkl jf kgl maks mht pga prof st tlf vedr",
    "nl": "bijv blz ca dhr dr drs excl incl ing ir jhr jl mevr mr mw prof resp st tel vgl",
    "pl": "al bp dr gen hab in inż ks lek m.in mgr np os pl płk prof śp św tel tzn tzw ul",
    "pt": "aprox av dr dra drs eng exma exmo ex prof profa sr sra srs sras srta tel",
    "ro": "dl dna dr ex ing nr prof sf st str tel",
    "ru": "акад др доц напр просп проф св см ср ул",
    "sv": "bl ca dr dvs ex forts inkl jfr obs prof resp st t.ex tel",
    "tr": "alb av bkz cad doç dr gen mah örn prof sn sok",
    "uk": "акад вул див доц ім напр просп проф св",
}

_BEFORE_NUMBERS = {
    "cs": "čl kap obr odst str tab",
    "da": "afsn art fig kap kl nr pkt tlf",
    "de": "abb abs apr art aug bd dez feb fig jan kap okt nov sept -str tab ziff",
    "el": "αρ εικ κεφ σελ τηλ",
    "en": "apr art aug ch dec eq feb fig figs jan jul jun mar no nos nov oct pp sec sep sept vol vols",
    "es": "art arts cap fig núm pág págs vol",
    "fi": "kpl kuv luku nro",
    "fr": "art chap fig no num pp vol",
    "hu": "sz",
    "it": "art artt cap fig pag pagg vol",
    "nb": "art fig kap kl nr pkt",
    "nl": "art fig hfst nr tab",
    "pl": "art godz nr pkt poz rozdz rys str tab ust",
    "pt": "art arts cap fig núm pág págs vol",
    "ro": "art cap fig pag vol",
    "ru": "гл илл рис стр табл тел",
    "sv": "fig kap kl nr sid",
    "tr": "md no sf",
    "uk": "гл мал рис стор табл тел",
}

_SAME = {"nn": "nb", "no": "nb", "pb": "pt", "gl": "es", "ca": "es", "sk": "cs", "be": "ru"}
"""Languages that have no list of their own, with one whose list suits them."""


def abbreviations(language: str) -> tuple[list[str], list[str]]:
    """Those that never end a sentence, and those that do not in front of a number; none for other languages.

    Args:
        language: a code without region, as in "de".
    """
    listed = _SAME.get(language, language)
    return _ALWAYS.get(listed, "").split(), _BEFORE_NUMBERS.get(listed, "").split()
