"""The fixture `hub`: a hub on this machine."""

from stub_hub import hub as hub
