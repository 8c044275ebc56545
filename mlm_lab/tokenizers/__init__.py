"""Tokenizers: trained here (wordpiece, bpe, unigram) or given (pretrained); loading.py is what the rest of the program uses.

A kind of tokenizer is a frozen dataclass with `train(texts) -> tokenizers.Tokenizer` in its own file, chosen by conf/tokenizer/<name>.yaml.
"""
