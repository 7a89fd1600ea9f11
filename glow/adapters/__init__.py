"""Adapters for LangChain, LlamaIndex, Haystack and MCP over `glow.client`; each module needs its framework's package."""

from glow.adapters.store import FoundText, GlowStore

__all__ = ["FoundText", "GlowStore"]
