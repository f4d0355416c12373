"""Arguments of a call: reads, validates, repairs and explains what a model sent; and their schemas.

When a tool is defined, its schema is made, for the model and for the checks:

    typed function -> `signature` (`call_style`, `docstrings`) -> `plain_types`, or pydantic -> schema
    pydantic model -> `type_schemas` --------------------------------------------------------> schema
    JSON Schema ----> `schema` checks it -----------------------------------------------------> schema
    schema ---------> `tool_formats` (`old_drafts`, `outline`) -> the definition in the format of a provider

When a tool is called, one of three parsers gets what the model sent, and returns the arguments or raises `ToolError`:

    a typed function   `parse.make_typed_parser`    pydantic checks by the function's types
    a JSON Schema      `schema.compile_parser`      jsonschema-rs checks by the schema
    a pydantic model   `parse.make_model_parser`    first by the model's schema, then the model's own validators

Correct arguments of a typed function take one strict pass over the text. Everything else goes this way:

    text -> `almost_json` -> data -> check -> arguments
                                       |
                                   problems -> `repair` (`wrappers`, `names`) -> check -> `Repaired`
                                                                                   |
                                                                               `explain` -> `ToolError`

Aliases of names are replaced before the check. What a model's own validators refuse is explained, and not repaired.

What both paths use:

    json_text          writes JSON text, limits its size, and has the errors about text that is no JSON
    parameters         limits and examples in a parameter's type
    plain_types        reads parameters of plain types without pydantic
    spellings          reads lists and objects in other spellings than JSON's
    pydantic_private   all that Forge knows of pydantic beyond its public interface
    type_schemas       the JSON Schemas of Python types: of pydantic models, and of return types
    outline            the parameters of a schema, wherever its root keeps them
    references         follows the references of a schema within bounds
    old_drafts         rewrites older spellings of JSON Schema
    names              another spelling of a name, or a close one
    example            a correct call, made from a schema, for errors
    repair_typed       translates pydantic's errors into `ArgumentProblem`, as `schema` does with those of jsonschema-rs
"""
