"""Chat templates modelled on published ones: each writes what transformers 5 makes of it, in text and in ids."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from decodescope.engine.core.conversation import Conversation
from decodescope.engine.model.checkpoint import tokenizer
from decodescope.engine.model.checkpoint.chat_template import (
    ChatTemplates,
    TemplateError,
    read_templates,
    render,
    render_each,
)
from decodescope.engine.model.checkpoint.run_template import OwnRefusal, compile_template
from decodescope.engine.model.checkpoint.tokenizer import Tokenizer
from decodescope.engine.session.load import SHIPPED

SPECIAL = {
    "bos_token": "<|begin|>",
    "eos_token": "<|stop|>",
    "pad_token": "<|pad|>",
    "image_token": "<|image|>",
}
TEMPLATES = {
    "a date and tools": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set about = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set about = "" %}
{%- endif %}
{{- "<|role|>system<|role|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Today: " + date_string + "\\n\\n" + about + "<|stop|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|role|>' + message['role'] + '<|role|>\\n\\n' + message['content'] | trim + '<|stop|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls|length != 1 %}
            {{- raise_exception("One tool call at a time!") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}<|stop|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|role|>assistant<|role|>\\n\\n' }}
{%- endif %}
""",
    "thoughts that can be switched off": """{%- if tools %}
    {{- '<|role|>system\\n# Tools\\n' }}
    {%- for tool in tools %}
        {{- "\\n" }}{{- tool | tojson }}
    {%- endfor %}
{%- elif messages[0].role == 'system' %}
    {{- '<|role|>system\\n' + messages[0].content + '<|stop|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi and message.role == "user" and message.content is string and not message.content.startswith('<back>') %}
        {%- set ns.multi = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|role|>' + message.role + '\\n' + content + '<|stop|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or thoughts) %}
            {{- '<|role|>assistant\\n<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|role|>assistant\\n' + content }}
        {%- endif %}
        {{- '<|stop|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|role|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "turns that must alternate": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate user/assistant/...") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == loop_messages[-1]) %}
            {{- "[TOOLS]" + tools | tojson + "[/TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
""",
    "no system role": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}\
{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Conversation roles must alternate') }}{% endif %}\
{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}\
{{ '<|role|>' + role + '\\n' + message['content'] | trim + '<|stop|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{'<|role|>model\\n'}}{% endif %}""",
    "parts of a message": """{{ bos_token }}{% for message in messages %}{{ '<|role|>' + message['role'] + '\\n' }}
{%- if message['content'] is string -%}
{{ message['content'] | trim }}
{%- elif message['content'] is iterable -%}
{%- for item in message['content'] -%}
{%- if item['type'] == 'image' -%}{{ image_token }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
{%- endfor -%}
{%- else -%}
{{ raise_exception("Invalid content type") }}
{%- endif -%}
{{ '<|stop|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|role|>model\\n' }}{% endif %}""",
    "a line a statement": """{% for message in messages %}
{% if message['role'] == 'system' %}
{{ '<|role|>system\\n' + message['content'] + '<|stop|>\\n' }}
{% elif message['role'] == 'user' %}
  {{ '<|role|>user\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
	{{ '<|role|>assistant\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|role|>assistant' }}
{% endif %}
{% endfor %}
""",
    "a system message of its own": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|role|>system\nYou are a helper.<|stop|>\n' }}{% endif %}{{'<|role|>' + message['role'] + '\n' + "
    "message['content'] + "
    "'<|stop|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|role|>assistant\n' }}{% endif %}",
    "answers to learn": """{# a header #}
{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- macro about(date) -%}
{{- "Today: " ~ date ~ "\\nMode: " ~ ("/think" if enable_thinking else "/no_think") ~ "\\n" -}}
{%- endmacro -%}
<|role|>system
{{ about(strftime_now("%d %B %Y")) }}<|stop|>
{% for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}
        {{ "<|role|>" + message.role + "\\n" + content + "<|stop|>\\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {%- set content = content.lstrip("\\n") -%}
        {{ "<|role|>" + message.role + "\\n" + content + "<|stop|>\\n" }}
        {% endgeneration %}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ "<|role|>assistant\\n" }}{%- endif -%}""",
    "documents and controls": """{%- if messages[0]['role'] == 'system' %}
     {%- set about = messages[0]['content'] %}{%- set rest = messages[1:] %}
 {%- else %}
     {%- set about = "Knowledge: April 2024.\\nToday: " + strftime_now('%B %d, %Y') + "." %}
     {%- if tools and documents %}
         {%- set about = about + " Tools and documents." %}
     {%- elif documents %}
         {%- set about = about + " Documents." %}
     {%- endif %}
     {%- if controls and controls['length'] %}{%- set about = about + controls['length'] %}{%- endif %}
     {%- set rest = messages %}
 {%- endif %}
 {{- '<|role|>system<|role|>' + about + '<|stop|>\\n' }}
 {%- if available_tools is not none and available_tools %}{{- available_tools | tojson(indent=4) }}{%- endif %}
 {%- if documents is not none %}
     {{- documents | tojson(indent=4) if documents | length else 'No documents.' }}
 {%- endif %}
 {%- for message in rest %}
     {{- '<|role|>' + message['role'] + '<|role|>' + message['content'] + '<|stop|>\\n' }}
     {%- if loop.last and add_generation_prompt %}
         {{- '<|role|>assistant' }}
             {%- if controls %}{{- ' ' + controls | tojson()}}{%- endif %}
         {{- '<|role|>' }}
     {%- endif %}
 {%- endfor %}""",
    "flags of a namespace": "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
    "{% set ns = namespace(is_first=false, is_tool=false, about='') %}{%- for message in messages %}"
    "{%- if message['role'] == 'system' %}{% set ns.about = message['content'] %}{%- endif %}{%- endfor %}"
    "{{bos_token}}{{ns.about}}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}"
    "{{'<|role|>U' + message['content']}}{%- endif %}"
    "{%- if message['role'] == 'assistant' and message['content'] is not none %}"
    "{% set content = message['content'] %}{% if '</think>' in content %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}"
    "{{'<|role|>A' + content + '<|stop|>'}}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}"
    "{{'<|role|>A<think>\\n'}}{% endif %}",
    "turns as JSON": "{{ messages | tojson }}\n{{ messages | tojson(indent=2) }}"
    "{{ {'b': 1, 'a': 'é<'} | tojson(sort_keys=true) }}"
    "{{ 'é' | tojson(true) }}{{ [1, 2] | tojson(separators=(',', ':')) }}{{ dict(a=1) }}{{ dict.fromkeys(['x']) }}",
    "breaks and continues": "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
    "{{ m.role }}:{{ m.content }}"
    "{% if loop.index > 3 %}{% break %}{% endif %}{% endfor %}{{ messages | map(attribute='role') | join(',') }}",
    "names that are given or not": "{{ [tools is defined, tools is none, documents is defined, documents is none, "
    "continue_final_message is defined, enable_thinking is defined, chat_template is defined, eos_token, unk_token is defined, "
    "image_token, additional_special_tokens is defined, add_generation_prompt] }}",
    "lines that end as on Windows": "{% for m in messages %}\r\n{{ m.role }}\r\n{{ m.content }}\r\n{% endfor %}\r\nend\r\n",
    "thoughts by any name": "{% for m in messages %}[{{ m.reasoning_content }}|{{ m.thinking }}|{{ m.reasoning }}]{% endfor %}",
    "an extension that is not there": "{% do messages %}",
    "a name with an underscore": "{% set ns = namespace() %}{% set ns._x = 1 %}{{ ns._x }}",
}  # fmt: skip
USER = {"role": "user", "content": "  Hi é<b>, what's 2+2?\n"}
SYSTEM = {"role": "system", "content": " Be short. "}
ANSWER = {"role": "assistant", "content": "\n4 "}
CALL = {"function": {"name": "add", "arguments": {"a": 2, "b": [1, None]}}}
CONVERSATIONS = {
    "a turn": [USER],
    "three turns": [USER, ANSWER, {"role": "user", "content": "Sure?"}],
    "a system message": [SYSTEM, USER],
    "all of them": [SYSTEM, USER, ANSWER, USER],
    "two questions": [USER, USER],
    "an empty message": [{"role": "user", "content": ""}],
    "lines of Windows": [{"role": "user", "content": "a\r\nb\rc"}],
    "thoughts in the text": [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4"}, USER],
    "thoughts apart from it": [USER, {"role": "assistant", "content": "4", "reasoning": "hm"}],
    "further keys": [{**USER, "name": "Ada", "tool_calls": None, "weight": 1.5}],
    "parts": [
        {
            "role": "user",
            "content": [{"type": "text", "text": " a "}, {"type": "image"}, {"type": "text", "text": "b"}],
        }
    ],
    "a call": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}],
    "a role of its own": [{"role": "judge", "content": "x"}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped tokenizer with further marks."""
    path = tmp_path_factory.mktemp("chats")
    shutil.copy(SHIPPED / "lab" / "tokenizer.json", path)
    more = ["<|role|>", "[INST]", "[/INST]"]
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL, "additional_special_tokens": more}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def ours(folder: Path) -> Tokenizer:
    """The folder as we read it."""
    return Tokenizer.from_folder(folder)


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    """The folder as transformers reads it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def text_of(make: Any) -> str:
    """The text that it makes; otherwise that it refuses or fails, with the template's own sentence if there is one."""
    from jinja2.exceptions import TemplateError as JinjaError

    try:
        return f"text {make()}"
    except OwnRefusal as error:
        return f"refused: {error}"
    except JinjaError as error:
        return f"refused: {error}" if type(error) is JinjaError else f"failed: {type(error).__name__}"
    except Exception as error:
        return f"failed: {type(error).__name__}"


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_writes_the_text_of_transformers(template: str, ours: Tokenizer, theirs: Any) -> None:
    source, outcomes = TEMPLATES[template], []
    for said in CONVERSATIONS.values():
        due = text_of(lambda said=said: theirs.apply_chat_template(
            said, chat_template=source, tokenize=False, add_generation_prompt=True))  # fmt: skip
        text = text_of(lambda said=said: compile_template(source)(ours.template_words(Conversation(said))))
        assert text == due, said
        outcomes.append(due.split(" ", 1)[0])
    alone = template in ("an extension that is not there", "a name with an underscore")
    assert ("text" in outcomes) != alone


WRITTEN = ["a date and tools", "turns that must alternate", "a line a statement", "answers to learn"]


@pytest.mark.parametrize("template", WRITTEN)
def test_a_chat_has_the_ids_of_transformers(template: str, ours: Tokenizer, theirs: Any) -> None:
    ours.templates = ChatTemplates(TEMPLATES[template])
    said = CONVERSATIONS["three turns"]
    due = theirs.apply_chat_template(said, chat_template=TEMPLATES[template], add_generation_prompt=True)[
        "input_ids"
    ]
    assert ours.chat(said) == due and len(due) > 25
    assert {ours.decode([x]) for x in due if x in ours.marks} >= {"<|stop|>"} or "eos_token" in TEMPLATES[
        template
    ]
    assert any(x >= 4096 for x in due), "marks that tokenizer_config.json adds"


def test_many_turns_have_the_ids_of_each_alone_by_few_runs_of_the_template(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = Tokenizer.from_folder(SHIPPED / "lab")
    turns = [f"How many are {i} and {i}?" for i in range(70)] + [
        "Say <|im_end|> please.",
        "Half \ud800 a pair.",
    ]
    alone = [ours.chat([{"role": "user", "content": x}]) for x in (turns[0], turns[69], *turns[70:])]
    runs, run = [], tokenizer.render_each
    monkeypatch.setattr(
        tokenizer, "render_each", lambda source, jobs: runs.append(len(jobs)) or run(source, jobs)
    )
    together = ours.chat_each(turns)
    assert [together[0], *together[69:]] == alone and len(together) == 72
    assert sum(runs) >= 72 and len(runs) <= 4
    assert ours.chat_each([]) == []


def test_a_template_that_refuses_a_conversation_is_quoted() -> None:
    words = {"messages": [SYSTEM, USER], "bos_token": ""}
    why = (
        r"^The chat template refuses this conversation: System role not supported; use plain text instead\.$"
    )
    with pytest.raises(TemplateError, match=why):
        render(TEMPLATES["no system role"], words)
    with pytest.raises(TemplateError, match=r"conversation: one two \\x1b\[2J; use plain") as error:
        render("{{ raise_exception('one\ntwo \x1b[2J.') }}", {})
    assert str(error.value).isprintable()


def test_one_conversation_that_is_refused_leaves_the_others_their_texts() -> None:
    source = "{{ raise_exception('no') if x == 1 else x / (x - 2) }}"
    texts = render_each(source, [{"x": x} for x in (0, 1, 2, 3)])
    assert texts[0] == "-0.0" and texts[3] == "3.0"
    assert "refuses this conversation: no" in str(texts[1]) and "failed (division by zero)" in str(texts[2])


# ---- where they are

ONE, TWO = "{{ 'one' }}", "{{ 'two' }}"
PLACES: dict[str, tuple[Any, dict[str, str], str | None, tuple[str, ...]]] = {
    "a text": (ONE, {}, ONE, ()),
    "none": (None, {}, None, ()),
    "a list": ([{"name": "rag", "template": TWO}, {"name": "default", "template": ONE}], {}, ONE, ("rag",)),
    "a dict": ({"tool_use": TWO, "default": ONE}, {}, ONE, ("tool_use",)),
    "a list without a default": (
        [{"name": "rag", "template": TWO}, {"name": "tool_use", "template": ONE}], {}, None, ("rag", "tool_use")),
    "a file": (TWO, {"chat_template.jinja": ONE}, ONE, ()),
    "files": (TWO, {"chat_template.jinja": ONE, "additional_chat_templates/rag.jinja": TWO}, ONE, ("rag",)),
    "files without a default": (ONE, {"additional_chat_templates/rag.jinja": TWO}, None, ("rag",)),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_the_template_of_a_folder_is_the_one_that_transformers_takes(
    place: str, tmp_path: Path, folder: Path
) -> None:
    from transformers import AutoTokenizer

    said, files, due, others = PLACES[place]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **({} if said is None else {"chat_template": said}),
    }
    shutil.copy(folder / "tokenizer.json", tmp_path)
    for name, text in {**files, "tokenizer_config.json": json.dumps(config)}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = read_templates(tmp_path, config)
    assert (found.source, found.others) == (due, others)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    if due is not None:
        assert theirs.get_chat_template() == due
        return
    with pytest.raises(ValueError, match=r"chat_template|chat templates"):
        theirs.get_chat_template()
    named = (
        f"has chat templates named {', '.join(others)} and none named default"
        if others
        else "has no chat template"
    )
    with pytest.raises(ValueError, match=f"^The model {named}; give the prompt as plain text\\.$"):
        Tokenizer.from_folder(tmp_path).chat([USER])


def test_the_template_of_a_processor_is_used_where_there_is_no_other(tmp_path: Path) -> None:
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": ONE}))
    assert read_templates(tmp_path, {}).source == ONE
    assert read_templates(tmp_path, {"chat_template": TWO}).source == TWO


@pytest.mark.parametrize(
    "said", [5, [5], [{"name": "default"}], {"default": 1}, {"default": ONE, "rag": None}], ids=str
)
def test_a_template_that_is_no_text_is_named(said: Any, tmp_path: Path) -> None:
    found = read_templates(tmp_path, {"chat_template": said})
    assert found.source is None and "neither a text nor texts by name" in found.lacking
