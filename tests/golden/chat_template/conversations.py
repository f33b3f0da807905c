"""Conversations that chat templates are compared on."""

from __future__ import annotations

from typing import Any

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'Weather of a place, <now> & "here"',
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string", "description": "città"}, "days": {"type": "integer"}},
                "required": ["place"],
            },
        },
    }
]
_CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "get_weather", "arguments": {"place": "Zürich", "days": 2}},
}

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "user": {"messages": [{"role": "user", "content": "Hello!"}]},
    "no generation prompt": {"messages": [{"role": "user", "content": "Hello!"}], "add_generation_prompt": False},
    "system": {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2+2?"}],
    },
    "turns": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello, what can I do?"},
            {"role": "user", "content": "Count to three."},
            {"role": "assistant", "content": "1, 2, 3"},
            {"role": "user", "content": "Thanks"},
        ],
    },
    "odd text": {
        "messages": [
            {"role": "user", "content": "  padded\n\n<b>\"q\" & 'p'</b>\t{{ x }} {% y %} é 中 👍🏽 \u200d "},
            {"role": "assistant", "content": "\n ok \n"},
            {"role": "user", "content": ""},
        ],
    },
    "thinking": {
        "messages": [
            {"role": "user", "content": "1+1?"},
            {"role": "assistant", "content": "<think>\neasy\n</think>\n\n2"},
            {"role": "user", "content": "and 2+2?"},
        ],
    },
    "roles that do not alternate": {
        "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    },
    "tools": {"messages": [{"role": "user", "content": "Weather in Zürich?"}], "tools": TOOLS},
    "tool call": {
        "messages": [
            {"role": "user", "content": "Weather in Zürich?"},
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": '{"rain": false}'},
        ],
        "tools": TOOLS,
    },
}
