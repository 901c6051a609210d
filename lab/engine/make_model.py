#!/usr/bin/env python3
"""make_model.py FOLDER: write a tiny Llama with random weights, in the files that a real checkpoint has.

Runs in the engine image, without network. Small as it is, it has several shards with an index, a tokenizer trained on
a few sentences and a chat template. Four heads, so that four ranks share them; 32 elements a head, the least with which
the CPU attention kernel answers.
"""

from __future__ import annotations

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SENTENCES = [
    "the quick brown fox jumps over the lazy dog",
    "four sparks make one cluster and each node serves one quarter of the model",
    "hello world this is a tiny test of a tokenizer",
]
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer trained on SENTENCES; every byte is a token, so any text can be encoded."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        chat_template=CHAT_TEMPLATE,
    )


def make_model(vocabulary: int) -> LlamaForCausalLM:
    """A two-layer Llama whose weights are the same at every call."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16)


def main() -> None:
    """Write tokenizer and weights; 200 kB a shard makes three or more of them."""
    folder = sys.argv[1]
    make_tokenizer().save_pretrained(folder)
    # Rounded up to a multiple of the largest number of ranks, so that the embedding divides evenly.
    make_model(vocabulary=1024).save_pretrained(folder, max_shard_size="200KB")


if __name__ == "__main__":
    main()
