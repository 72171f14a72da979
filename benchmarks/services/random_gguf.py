"""Write a random Llama of 36 million parameters (Q8_0) into a folder: `python random_gguf.py FOLDER`, with the package `gguf`.

The vocabulary has bytes and syllables (`pieces.py`), so that any text can be tokenised, with about three tokens a word. Every
output continues until the caller's limit, in whole characters: a constant component of the state keeps the scores of control
and byte tokens far below all others.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np
from pieces import CONTROL, make_pieces

LAYERS, WIDTH, HEADS, FEED_FORWARD, CONTEXT = 8, 512, 8, 1920, 32_768
VOCABULARY = 4096
PLAIN = len(CONTROL) + 256
"""Number of the first token that an output may contain."""
TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def vocabulary() -> list[str]:
    """Return control tokens, bytes, and the first pieces."""
    return [*CONTROL, *(f"<0x{byte:02X}>" for byte in range(256)), *make_pieces()][:VOCABULARY]


def write(path: Path) -> None:
    """Write the model with a fixed seed."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random-llama-36m")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    tokens = vocabulary()
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * PLAIN + [-float(rank) for rank in range(len(tokens) - PLAIN)])
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    writer.add_token_types([*kinds, *[gguf.TokenType.BYTE] * 256, *[gguf.TokenType.NORMAL] * (len(tokens) - PLAIN)])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)

    random = np.random.default_rng(48)

    def draw(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)

    def add(name: str, weights: np.ndarray) -> None:
        kind = gguf.GGMLQuantizationType.Q8_0 if weights.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)

    # Component 0 of the state is constant: all embeddings have it, no layer adds to it.
    embedding, output = draw(len(tokens), WIDTH) * WIDTH**0.5, draw(len(tokens), WIDTH) * 4
    embedding[:, 0] = 8.0
    output[:PLAIN], output[:, 0] = 0.0, 0.0
    output[:PLAIN, 0] = -100.0
    add("token_embd.weight", embedding)
    add("output_norm.weight", np.ones(WIDTH, np.float32))
    add("output.weight", output)
    for layer in range(LAYERS):
        attention, down = draw(WIDTH, WIDTH), draw(WIDTH, FEED_FORWARD)
        attention[0], down[0] = 0.0, 0.0
        weights = {
            "attn_norm": np.ones(WIDTH, np.float32), "attn_q": draw(WIDTH, WIDTH), "attn_k": draw(WIDTH, WIDTH),
            "attn_v": draw(WIDTH, WIDTH), "attn_output": attention, "ffn_norm": np.ones(WIDTH, np.float32),
            "ffn_gate": draw(FEED_FORWARD, WIDTH), "ffn_up": draw(FEED_FORWARD, WIDTH), "ffn_down": down,
        }  # fmt: skip
        for name, values in weights.items():
            add(f"blk.{layer}.{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]) / "model.gguf")
