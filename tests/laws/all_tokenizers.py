"""Several tokenizers as one, so that one new process encodes and fits with all of them: it starts in seconds."""

from seqkit.interfaces import Tokenizer


class AllTokenizers(Tokenizer):
    """Encodes pairs of a tokenizer's name and a raw example of its own; fits each that can be fitted."""

    def __init__(self, tokenizers):
        self.tokenizers = tokenizers

    @property
    def spec(self):
        raise NotImplementedError

    def encode(self, raw):
        name, own = raw
        return self.tokenizers[name].encode(own)

    def fit(self, raws):
        for name, tokenizer in self.tokenizers.items():
            if hasattr(tokenizer, "fit"):
                tokenizer.fit([own for one, own in raws if one == name])

    def state(self):
        return {
            name: each.state() for name, each in self.tokenizers.items() if hasattr(each, "fit")
        }

    def load_state(self, state):
        for name, own in state.items():
            self.tokenizers[name].load_state(own)
