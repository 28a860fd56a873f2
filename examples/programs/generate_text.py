"""An inference loop: a GPT-2 sized model (random weights) writes tokens one by one, each read back by the host."""

from __future__ import annotations

import profiled
import torch
import transformers


def main() -> None:
    parser = profiled.arguments("Generate tokens greedily and record the loop.")
    parser.add_argument("--tokens", type=int, default=12)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).half().cuda().eval()
    prompt = torch.randint(0, 50257, (8, 256))

    @torch.inference_mode()
    def generate(tokens: int) -> list[list[int]]:
        written: list[list[int]] = []
        ids, past = prompt.cuda(), None
        for _ in range(tokens):
            answer = model(ids, past_key_values=past, use_cache=True)
            past = answer.past_key_values
            scores = answer.logits[:, -1].float().cpu()  # sampling on the host, as many serving loops do
            chosen = scores.argmax(-1, keepdim=True)
            written.append(chosen.flatten().tolist())
            ids = chosen.cuda()
        return written

    expected = generate(options.tokens)
    written: list[list[int]] = []
    profiled.profile_to(options.out, lambda: written.extend(generate(options.tokens)))
    if written != expected:
        raise SystemExit("two runs of the same model wrote different tokens")


if __name__ == "__main__":
    main()
