// English stop words, the same as in glow/text/analyzer.py, which count only in a query of nothing else.

export const STOP_WORDS = new Set(
  [
    "a an the this that these those such same",
    "i me my mine we us our ours you your yours he him his she her hers it its they them their theirs",
    "myself yourself himself herself itself ourselves yourselves themselves",
    "and or but nor so if then than because while as too also just only very not no there here",
    "am is are was were be been being have has had having do does did doing done",
    "can could will would shall should may might must",
    "s t re ve ll don doesn didn isn aren wasn won",
    "what which who whom whose when where why how",
    "of in on at by for with to from into about as",
  ].join(" ").split(" "),
);
