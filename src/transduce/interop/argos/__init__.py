"""Argos Translate: .argosmodel packages, which LibreTranslate installs."""
