"""Keys of model vendors and of what surrounds models."""

from __future__ import annotations

from typing import Final

from amux.hub.guard.rules import Rule, secret

RULES: Final[tuple[Rule, ...]] = (
    secret(
        "openai-key",
        r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,300}|sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}",
        hints=("sk-",),
        source="OpenAI, API keys; gitleaks: openai-api-key",
        positive=(
            "sk-proj-<156 urlsafe>",
            "sk-<20 alnum>T3BlbkFJ<20 alnum>",
            "sk-admin-<100 urlsafe>",
        ),
        negative=("sk-proj-...", "sk-learn-contrib-packages-are-listed"),
    ),
    secret(
        "anthropic-key",
        r"sk-ant-(?:[a-z]{2,8}[0-9]{2}-)?[A-Za-z0-9_-]{80,200}",
        hints=("sk-ant-",),
        source="Anthropic, API keys; gitleaks: anthropic-api-key",
        positive=("sk-ant-api03-<93 urlsafe>AA", "sk-ant-oat01-<93 urlsafe>AA"),
        negative=("sk-ant-api03-...",),
    ),
    secret(
        "openrouter-key",
        r"sk-or-(?:v1-)?[A-Za-z0-9]{40,80}",
        hints=("sk-or-v1-",),
        source="OpenRouter, API keys",
        positive=("sk-or-v1-<64 hex>",),
        negative=("sk-or-v1-key",),
    ),
    secret(
        "model-vendor-key",
        r"sk-(?:[a-f0-9]{32}|[A-Za-z0-9]{48,51})",
        hints=("sk-",),
        source="DeepSeek, DashScope, Moonshot: keys of 32 hex digits or 48 letters after sk-",
        positive=("sk-<32 hex>", "sk-<48 alnum>"),
        negative=("sk-your-key-here", "task-<32 hex>"),
    ),
    secret(
        "huggingface-token",
        r"hf_[A-Za-z0-9]{30,40}|(?:api_org|hf_oauth|hf_jwt)_[A-Za-z0-9]{30,200}",
        hints=("hf_", "api_org_"),
        source="Hugging Face, user access tokens",
        positive=("hf_<34 alpha>", "api_org_<34 alpha>"),
        negative=("hf_hub_download", "hf_transfer"),
    ),
    secret(
        "replicate-token",
        r"r8_[A-Za-z0-9_-]{37}",
        hints=("r8_",),
        source="Replicate, API tokens",
        positive=("r8_<37 alnum>",),
        negative=("r8_unorm",),
    ),
    secret(
        "groq-key",
        r"gsk_[A-Za-z0-9]{40,64}",
        hints=("gsk_",),
        source="Groq, API keys",
        positive=("gsk_<52 alnum>",),
        negative=("gsk_key",),
    ),
    secret(
        "xai-key",
        r"xai-[A-Za-z0-9_-]{70,90}",
        hints=("xai-",),
        source="xAI, API keys",
        positive=("xai-<80 alnum>",),
        negative=("xai-sdk",),
    ),
    secret(
        "perplexity-key",
        r"pplx-[A-Za-z0-9]{40,64}",
        hints=("pplx-",),
        source="Perplexity, API keys; gitleaks: perplexity-api-key",
        positive=("pplx-<48 alnum>",),
        negative=("pplx-api",),
    ),
    secret(
        "nvidia-key",
        r"nvapi-[A-Za-z0-9_-]{40,80}",
        hints=("nvapi-",),
        source="NVIDIA, API keys",
        positive=("nvapi-<64 urlsafe>",),
        negative=("nvapi-key",),
    ),
    secret(
        "langsmith-key",
        r"lsv2_(?:pt|sk)_[A-Za-z0-9]{32}_[A-Za-z0-9]{10}|ls__[A-Za-z0-9]{32}",
        hints=("lsv2_", "ls__"),
        source="LangSmith, API keys",
        positive=("lsv2_pt_<32 hex>_<10 hex>",),
        negative=("lsv2_pt_key",),
    ),
    secret(
        "tavily-key",
        r"tvly-(?:dev-)?[A-Za-z0-9]{32}",
        hints=("tvly-",),
        source="Tavily, API keys",
        positive=("tvly-<32 alnum>", "tvly-dev-<32 alnum>"),
        negative=("tvly-key",),
    ),
)
